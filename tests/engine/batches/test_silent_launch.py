"""Launches that bring no sample yet, with a stand-in for a GPU's stream."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from spoken import prompt_tensors, speech_tokens

from cosyvoice_runtime.engine.runtimes import torch_runtime as load
from cosyvoice_runtime.token2wav.token2wav import Token2Wav, WaveState
from stream_fake import Work


@pytest.fixture
def busy(monkeypatch) -> Work:
    busy = Work()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: busy)
    return busy


@pytest.fixture
def token2wav(torch_settings, busy, monkeypatch) -> Token2Wav:
    token2wav = load.load_token2wav(torch_settings)
    monkeypatch.setattr(token2wav.flow, "_on_gpu", True)
    return token2wav


@pytest.fixture
def state(token2wav) -> Iterator[WaveState]:
    """Its first block has 10 frames of new mel, fewer than the vocoder holds back."""
    state = token2wav.open(prompt_tensors(token2wav, 45).flow_prompt(), noise_seed=7)
    token2wav.push(state, speech_tokens(28, 3))
    yield state
    token2wav.close(state)


def test_the_host_waits_for_a_launch_without_samples(token2wav, state, busy):
    """Whoever has the outcome may go on in another stream, which reads what this one leaves in pages."""
    waveforms = token2wav.launch([state])
    assert not busy.host_waits
    [wave] = waveforms()
    assert not len(wave)
    assert busy.host_waits == 1


def test_samples_are_waited_for_alone(token2wav, state, busy):
    token2wav.launch([state])()
    token2wav.push(state, speech_tokens(25, 4))
    [wave] = token2wav.launch([state])()
    assert len(wave)
    assert busy.host_waits == 1
