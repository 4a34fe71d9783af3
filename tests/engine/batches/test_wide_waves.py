"""Utterances whose numbers leave the range of float16 go on in float32, and nobody else hears of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from spoken import alone, chunks_of, prompt_tensors, speech_tokens

from cosyvoice_runtime.engine.batches import WaveChunk, WaveOutcome, open_router
from cosyvoice_runtime.engine.batches.load import follow_waves
from cosyvoice_runtime.engine.batches.wide_waves import METRIC, WideWaves
from cosyvoice_runtime.engine.runtimes import torch_runtime
from cosyvoice_runtime.errors import FLOW, VOCODER, CheckpointError, NotFiniteError, WithdrawnError
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.metrics.page import read_samples
from cosyvoice_runtime.settings import Token2WavSettings
from damaged import damaged
from making import make_checkpoint

BEYOND = 1e6
"""Out of float16's range, and well within float32's; a norm follows the layer that reads it."""
TOKENS = [token or 1 for token in speech_tokens(90, 0)]
BAD_TOKEN = next(token for token in range(1, 6561) if token not in TOKENS)
ROW = slice(BAD_TOKEN, BAD_TOKEN + 1)
ENDS = [30, 60, 90]
NAN = float("nan")
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def half(torch_settings) -> Token2WavSettings:
    return torch_settings.replace(dtype="float16")


@contextmanager
def followed(settings: Token2WavSettings, directory: Path) -> Iterator[WideWaves]:
    metrics = Metrics("token2wav", directory)
    router = open_router(settings, metrics)
    with closing(follow_waves(settings, router, metrics)) as waves, closing(router):
        yield waves


def sent(waves: WideWaves, chunk: WaveChunk) -> Future[WaveOutcome]:
    outcome: Future[WaveOutcome] = Future()
    waves.submit(chunk, outcome.set_result)
    return outcome


def answer(waves: WideWaves, chunk: WaveChunk) -> WaveOutcome:
    return sent(waves, chunk).result(TIMEOUT_S)


def apart(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def counted(directory: Path) -> dict[str, float]:
    return {each.labels["stage"]: each.value for each in read_samples(directory) if each.name == METRIC}


@pytest.fixture(scope="module")
def wide_checkpoint(half, tmp_path_factory) -> Path:
    """One token's embedding leaves the range of float16."""
    copy = tmp_path_factory.mktemp("wide") / "checkpoint"
    return damaged(half.checkpoint_dir, copy, "flow.pt", "input_embedding.weight", BEYOND, ROW)


@pytest.fixture(scope="module")
def wide(half, wide_checkpoint) -> Token2WavSettings:
    return half.replace(checkpoint_dir=wide_checkpoint)


@pytest.fixture(scope="module")
def single(wide):
    """The networks in float32."""
    return torch_runtime.load_token2wav(wide.replace(dtype="float32"))


def test_a_stream_that_breaks_in_its_middle_is_heard_to_its_end(wide, single, tmp_path, caplog):
    tokens = [*TOKENS[:40], BAD_TOKEN, *TOKENS[41:]]
    voice = prompt_tensors(single, 30)
    expected = alone(single, voice, tokens)
    with followed(wide, tmp_path) as waves, caplog.at_level(logging.WARNING):
        heard = [answer(waves, chunk) for chunk in chunks_of("a", tokens, ENDS, "v", voice)]
        assert len(waves) == 0
    assert not [each for each in heard if isinstance(each, Exception)]
    whole = np.concatenate(heard)
    assert whole.shape == expected.shape
    first = len(heard[0])
    assert 0 < first < len(whole)
    # Of half precision, by which the phase of random networks drifts.
    assert 1e-5 < apart(heard[0], expected[:first]) < 0.7
    np.testing.assert_allclose(whole[first:], expected[first:], atol=2e-3, rtol=0)
    assert counted(tmp_path) == {FLOW: 1, VOCODER: 0}
    assert "utterance a: flow gave NaN or infinity; it goes on in float32" in caplog.messages


def test_chunks_of_cosyvoice300m_keep_their_schedule(half, tmp_path, tmp_path_factory):
    made = make_checkpoint(tmp_path_factory.mktemp("made") / "tiny", "tiny", seed=5, family="cosyvoice300m")
    tokens = [token % 4000 + 1 for token in speech_tokens(260, 0)]
    tokens[150] = bad = 4050
    row = slice(bad, bad + 1)
    checkpoint = damaged(made, tmp_path / "c", "flow.pt", "input_embedding.weight", BEYOND, row)
    settings = half.replace(checkpoint_dir=checkpoint, max_batch=1)
    networks = torch_runtime.load_wide(settings).token2wav
    voice, ends = prompt_tensors(networks, 30), [130, 260]
    with followed(settings, tmp_path) as waves:
        heard = [answer(waves, chunk) for chunk in chunks_of("a", tokens, ends, "v", voice)]
    state = networks.open(voice.flow_prompt(), 7)
    expected = []
    for start, end in ((0, 130), (130, 260)):
        networks.push(state, tokens[start:end], end == 260)
        expected += networks.advance([state])
    assert [len(wave) for wave in heard] == [len(wave) for wave in expected]
    np.testing.assert_allclose(heard[1], expected[1], atol=2e-3, rtol=0)
    assert counted(tmp_path)[FLOW] == 1


def test_others_go_on_in_half_precision(wide, half, tmp_path):
    voice = prompt_tensors(torch_runtime.load_token2wav(half), 30)
    bad_tokens = [BAD_TOKEN, *TOKENS[1:]]
    with followed(wide, tmp_path) as waves:
        bad = [sent(waves, chunk) for chunk in chunks_of("bad", bad_tokens, ENDS, "v", voice)]
        good = [answer(waves, chunk) for chunk in chunks_of("good", TOKENS, ENDS, "v", voice)]
        rescued = [each.result(TIMEOUT_S) for each in bad]
    assert not [each for each in (*good, *rescued) if isinstance(each, Exception)]
    assert sum(map(len, rescued)) == sum(map(len, good))
    assert counted(tmp_path)[FLOW] == 1


def test_numbers_that_float32_does_not_hold_either_end_the_utterance(half, tmp_path, caplog):
    checkpoint = damaged(half.checkpoint_dir, tmp_path / "c", "hift.pt", "conv_post.bias", NAN)
    settings = half.replace(checkpoint_dir=checkpoint)
    voice = prompt_tensors(torch_runtime.load_token2wav(settings), 30)
    first, second, _ = chunks_of("a", TOKENS, ENDS, "v", voice)
    with followed(settings, tmp_path) as waves:
        outcome = answer(waves, first)
        assert len(waves) == 0
        after = answer(waves, second)
    assert isinstance(outcome, NotFiniteError)
    assert outcome.stage == VOCODER
    assert isinstance(after, Exception)
    assert "utterance a: in float32, too, vocoder: NaN or infinity in the samples" in caplog.messages


def test_networks_that_cannot_be_loaded_end_the_utterance(wide, single, tmp_path, monkeypatch):
    def fails(_: Token2WavSettings) -> None:
        raise CheckpointError("there is no memory")

    monkeypatch.setattr(torch_runtime, "load_wide", fails)
    voice = prompt_tensors(single, 30)
    with followed(wide, tmp_path) as waves:
        [outcome] = [answer(waves, chunk) for chunk in chunks_of("a", [BAD_TOKEN] * 30, [30], "v", voice)]
    assert isinstance(outcome, NotFiniteError)


def test_a_cancel_ends_what_waits_for_float32(wide, single, tmp_path, monkeypatch):
    loading, cancelled = Future(), Future()

    def waits(_: Token2WavSettings) -> SimpleNamespace:
        loading.set_result(None)
        cancelled.result(TIMEOUT_S)
        raise CheckpointError("too late")

    monkeypatch.setattr(torch_runtime, "load_wide", waits)
    [chunk, _] = chunks_of("a", [BAD_TOKEN] * 60, [30, 60], "v", prompt_tensors(single, 30))
    with followed(wide, tmp_path) as waves:
        outcome = sent(waves, chunk)
        loading.result(TIMEOUT_S)
        assert len(answer(waves, WaveChunk.forgetting("a"))) == 0
        assert isinstance(outcome.result(TIMEOUT_S), WithdrawnError)
        assert len(waves) == 0
        cancelled.set_result(None)


def test_utterances_that_nobody_ends_are_forgotten(half, tmp_path):
    now = [0.0]
    voice = prompt_tensors(torch_runtime.load_token2wav(half), 30)
    metrics = Metrics("token2wav", tmp_path)
    with closing(open_router(half, metrics)) as router:
        waves = WideWaves(router, lambda: None, metrics, 60.0, lambda: now[0])
        for name, time_s in (("left", 0.0), ("spoken", 50.0), ("next", 70.0)):
            now[0] = time_s
            answer(waves, chunks_of(name, TOKENS, ENDS, "v", voice)[0])
        assert sorted(waves._utterances) == ["next", "spoken"]
        waves.close()


def test_float32_has_no_wider_networks(half, tmp_path):
    router = SimpleNamespace(submit=lambda chunk, deliver: deliver(np.zeros(len(chunk.tokens), np.float32)))
    waves = follow_waves(half.replace(dtype="float32"), router, Metrics("token2wav", tmp_path))
    assert len(answer(waves, WaveChunk("a", [1, 2], 0, False, "v", 7))) == 2
    assert len(waves) == 0
    waves.close()
