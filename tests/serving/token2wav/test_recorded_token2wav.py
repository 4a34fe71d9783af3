"""token2wav with a stand-in for CUDA graphs, as a GPU's server has it."""

from __future__ import annotations

import itertools
import logging

import numpy as np
import pytest
import torch
from spoken import alone, prompt_tensors, speech_tokens

from cosyvoice_runtime.flow.recorded_calls import CallSizes
from cosyvoice_runtime.pipeline.token2wav import Token2Wav
from cosyvoice_runtime.serving.token2wav import load
from recorder_fake import TracingRecorder

SIZES = CallSizes(rows=(2,), chunks=(1, 2), before=(2, 6))
RECORDINGS = 4 + 2
TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def recorder() -> TracingRecorder:
    return TracingRecorder()


@pytest.fixture(scope="module")
def recorded(settings, recorder) -> Token2Wav:
    token2wav = load.load_token2wav(settings)
    assert token2wav.record(SIZES, recorder) == RECORDINGS
    return token2wav


def test_every_chunk_of_a_stream_is_replayed(recorded, recorder, shared_token2wav):
    """Three recordings a call: a start, a step for each step of the solver, a vocoder."""
    prompts = [prompt_tensors(recorded, tokens, seed) for seed, tokens in enumerate((30, 55))]
    tokens = [speech_tokens(140, seed) for seed in range(2)]
    states = [recorded.open(prompt.flow_prompt(), noise_seed=7) for prompt in prompts]
    waves: list[list[torch.Tensor]] = [[], []]
    edges = [0, 28, 53, 103, 140]
    for start, end in itertools.pairwise(edges):
        before = recorder.replays
        for state, row in zip(states, tokens, strict=True):
            recorded.push(state, row[start:end], last=end == 140)
        for kept, wave in zip(waves, recorded.advance(states), strict=True):
            kept.append(wave)
        assert recorder.replays == before + 1 + recorded.flow.flow.solver.num_steps + 1
    for state, prompt, row, wave in zip(states, prompts, tokens, waves, strict=True):
        recorded.close(state)
        whole = alone(shared_token2wav, prompt, row)
        np.testing.assert_allclose(torch.cat(wave).numpy(), whole, atol=TOLERANCE)


def test_recordings_are_made_where_the_settings_want_them(settings, recorder, monkeypatch, caplog):
    monkeypatch.setattr(load, "CudaRecorder", lambda _: recorder)
    monkeypatch.setattr(load.CallSizes, "up_to", lambda rows: CallSizes((rows,), chunks=(1,), before=(2,)))
    caplog.set_level(logging.INFO)
    token2wav = load.load_token2wav(settings)
    load.record(token2wav, settings.replace(cuda_graphs=False))
    assert "every kernel is launched" in caplog.text
    load.record(token2wav, settings.replace(max_batch=1))
    assert "2 recordings made" in caplog.text


def test_more_rows_than_a_gpu_gains_from_are_not_recorded():
    assert CallSizes.up_to(5).rows == [1, 2, 4, 5]
    assert CallSizes.up_to(1024).rows == [1, 2, 4, 8, 16]
