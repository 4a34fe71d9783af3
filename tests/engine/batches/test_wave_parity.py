"""What the service speaks is what the library speaks."""

from __future__ import annotations

import dataclasses
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from spoken import alone, chunks_of, prompt_tensors, speech_tokens

from cosyvoice_runtime.engine.batches import VoiceCache, WaveScheduler, WaveService, open_router
from cosyvoice_runtime.engine.runtimes.runtime import WaveRuntime, warm_up
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.metrics.page import read_samples
from examples import examples

TOLERANCE = 2e-3
"""Of the waveform, full scale 1: batching changes roundings, which the running phase adds up."""


def test_warm_up_leaves_nothing(token2wav):
    warm_up(token2wav, rows=3)
    assert token2wav.flow.recomputing == 0


def test_loaded_service_holds_nothing(settings, tmp_path):
    service = open_router(settings, Metrics("token2wav", tmp_path))
    service.close()
    shown = numbers(tmp_path)
    assert shown.pop("pages") == settings.max_flow_pages
    assert shown.pop("backend") == 1
    assert set(shown.values()) == {0}


def test_utterances_on_two_devices_equal_each_alone(settings, shared_token2wav, tmp_path):
    prompt = prompt_tensors(shared_token2wav, 40)
    waves: dict[int, list[np.ndarray]] = {row: [] for row in range(4)}
    tokens = {row: speech_tokens(40 + 10 * row, row) for row in waves}
    two = settings.replace(device="cpu,cpu")
    with closing(open_router(two, Metrics("token2wav", tmp_path))) as service:
        for part in range(2):
            for row, wave in waves.items():
                cut = chunks_of(str(row), tokens[row], [25, len(tokens[row])], "v", prompt)
                service.submit(cut[part], wave.append)
    shown = numbers(tmp_path)
    of_each_device = settings.backend == "torch"  # else they have those of one together
    assert shown["pages"] == settings.max_flow_pages * (2 if of_each_device else 1)
    assert shown["voice_lookups_total"] == len(waves)
    assert shown["voices"] == shown["utterances"] == 0
    for row, wave in waves.items():
        expected = alone(shared_token2wav, prompt, tokens[row])
        np.testing.assert_allclose(np.concatenate(wave), expected, atol=TOLERANCE, rtol=0)


def numbers(directory: Path) -> dict[str, float]:
    """Sums of the gauges and counters on the page, over devices and results."""
    found = Counter[str]()
    for sample in read_samples(directory):
        found[sample.name.removeprefix("cosyvoice_token2wav_")] += sample.value
    return dict(found)


@hypothesis_settings(max_examples=examples(5, fresh=20))
@given(
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=4),
    hop=st.integers(5, 60),
    order=st.randoms(use_true_random=False),
)
def test_utterances_interleaved_in_any_order_equal_each_alone(shared_token2wav, lengths, hop, order):
    token2wav = shared_token2wav
    voices = VoiceCache(token2wav.flow, 2)
    service = WaveService(token2wav, voices, idle_timeout_s=60)
    prompts = [prompt_tensors(token2wav, 40, seed=voice) for voice in range(2)]
    tokens = [speech_tokens(length, seed) for seed, length in enumerate(lengths)]
    queues = [
        chunks_of(
            str(row),
            row_tokens,
            ends_of(len(row_tokens), hop),
            str(row % 2),
            prompts[row % 2],
            seed=row,
        )
        for row, row_tokens in enumerate(tokens)
    ]
    waves: list[list[np.ndarray]] = [[] for _ in lengths]
    with closing(service):  # of a failed example too: the next ones share its pages
        while any(queues):
            chosen = [row for row, queue in enumerate(queues) if queue and order.random() < 0.6]
            for row, wave in zip(chosen, service.run([queues[row].pop(0) for row in chosen]), strict=True):
                waves[row].append(wave)
        for row, row_tokens in enumerate(tokens):
            expected = alone(token2wav, prompts[row % 2], row_tokens, seed=row)
            np.testing.assert_allclose(np.concatenate(waves[row]), expected, atol=TOLERANCE, rtol=0)
        assert voices.usage().pages_in_use == voices.usage().voice_pages
    assert voices.usage().pages_in_use == 0


@hypothesis_settings(max_examples=examples(5, fresh=16))
@given(
    lengths=st.lists(st.integers(1, 130), min_size=1, max_size=4),
    turn_s=st.sampled_from([1e-4, 0.05, 10.0]),
    cushion_s=st.floats(0, 5),
)
def test_scheduled_utterances_equal_each_alone(shared_token2wav, lengths, turn_s, cushion_s):
    token2wav = shared_token2wav
    service = WaveService(token2wav, VoiceCache(token2wav.flow, 2), idle_timeout_s=60)
    scheduler = WaveScheduler(service, WaveRuntime("torch", token2wav, 3), 64, turn_s)
    prompt = prompt_tensors(token2wav, 40)
    tokens = [speech_tokens(length, seed) for seed, length in enumerate(lengths)]
    waves: list[list[np.ndarray]] = [[] for _ in lengths]
    with closing(scheduler):
        for row, row_tokens in enumerate(tokens):
            parts = chunks_of(str(row), row_tokens, ends_of(len(row_tokens), 60), "voice", prompt, seed=row)
            for part in parts:
                scheduler.submit(dataclasses.replace(part, cushion_s=cushion_s * row), waves[row].append)
    for row, row_tokens in enumerate(tokens):
        expected = alone(token2wav, prompt, row_tokens, seed=row)
        np.testing.assert_allclose(np.concatenate(waves[row]), expected, atol=TOLERANCE, rtol=0)


def ends_of(count: int, hop: int) -> list[int]:
    return [*range(hop, count, hop), count]
