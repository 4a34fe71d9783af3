"""CosyVoice-300M from tokens to waveform, in its schedule of overlapping chunks."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from goldens import COSYVOICE_300M, Case, Compare

from cosyvoice_runtime.flow.torch.regulated_flow import RegulatedFlow
from cosyvoice_runtime.flow.voice_flow import FlowPrompt
from cosyvoice_runtime.token2wav.chunked_token2wav import CACHED_FRAMES, ChunkedToken2Wav, fade
from cosyvoice_runtime.vocoder.torch import HiFT
from cosyvoice_runtime.vocoder.torch.sampled_phase import RandomStart

TOLERANCE = 5e-3
CASES = COSYVOICE_300M.cases("token2wav")
CONFIG = COSYVOICE_300M.config()
CPU = torch.device("cpu")


@cache
def token2wav() -> ChunkedToken2Wav:
    return ChunkedToken2Wav(
        RegulatedFlow.from_tensors(CONFIG.flow, COSYVOICE_300M.tensors("tiny_flow")),
        HiFT.from_tensors(CONFIG.vocoder, COSYVOICE_300M.tensors("tiny_hift")),
    )


class GivenDraws:
    """The reference's, one after the other; its source is silent."""

    def __init__(self, noises: list[torch.Tensor]) -> None:
        self._noises = iter(noises)

    def flow(self, frames: int, bins: int) -> torch.Tensor:
        noise = next(self._noises)[0].T
        assert noise.shape == (frames, bins)
        return noise

    def vocoder(self, frames: int) -> RandomStart:
        return RandomStart.silent(CONFIG.vocoder, frames)

    def mark(self) -> None: ...

    def rewind(self, mark: None) -> None: ...


def prompt_of(case: Case) -> FlowPrompt:
    return FlowPrompt(
        case["prompt_token"][0].long().numpy(), case["prompt_feat"][0].numpy(), case["embedding"][0].numpy()
    )


@pytest.mark.parametrize("hop", [1, 33, 120, 1000])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_reference_streaming(case: Case, hop: int, compare: Compare) -> None:
    tokens = case["token"][0].tolist()
    draws = GivenDraws([case[f"z_{index}"] for index in range(len(case.settings["chunks"]))])
    state, waves = token2wav().open(prompt_of(case), noise_seed=0, draws=draws), []
    for start in range(0, len(tokens), hop):
        token2wav().push(state, tokens[start : start + hop])
        waves += token2wav().advance([state])
    token2wav().push(state, [], last=True)
    waves += token2wav().advance([state])
    whole = torch.cat([case[f"wav_{index}"] for index in range(len(case.settings["chunks"]))], dim=1)
    compare("wav", np.concatenate(waves)[None], whole, TOLERANCE)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reference_offline(case: Case, compare: Compare) -> None:
    state = token2wav().open(prompt_of(case), noise_seed=0, draws=GivenDraws([case["z_offline"]]))
    token2wav().push(state, case["token"][0].tolist(), last=True)
    [wave] = token2wav().advance([state])
    compare("wav_offline", wave[None], case["wav_offline"], TOLERANCE)


def test_windows(compare: Compare) -> None:
    expected = COSYVOICE_300M.tensors("token2wav")
    for name, length in (("mel_window", 34), ("speech_window", CONFIG.vocoder.hop * CACHED_FRAMES)):
        compare(name, fade(length, CPU).flatten(), expected[name], 1e-6)
