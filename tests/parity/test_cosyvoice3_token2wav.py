"""CosyVoice3 from tokens to waveform, in the reference's schedule and in ours.

The reference solves every chunk again, the last one with full attention, and vocodes all mel from the start;
ours goes on from pages and a state, and is compared with what exact streaming gives. Each waveform must be as
near as rounding in F0 allows, which the phase sums (rounding.py).
"""

from __future__ import annotations

from functools import cache

import pytest
import torch
from goldens import COSYVOICE3, Case, Compare
from rounding import compare_waves, rounded, rounding_effect

from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.stream import FlowStream
from cosyvoice_runtime.flow.voice_flow import FlowPrompt
from cosyvoice_runtime.token2wav.token2wav import Token2Wav
from cosyvoice_runtime.vocoder.torch import HiFT, HiFTStream
from prompts import prompt_of_tensors
from vocoder_calls import change_speed

TOLERANCE = 1e-3
"""Root mean square, full scale is 1."""
CASES = COSYVOICE3.cases("token2wav")
CONFIG = COSYVOICE3.config()


@cache
def networks() -> tuple[Flow, HiFT]:
    return (
        Flow.from_tensors(CONFIG.flow, COSYVOICE3.tensors("tiny_flow")),
        HiFT.from_tensors(CONFIG.vocoder, COSYVOICE3.tensors("tiny_hift")),
    )


def prompt_of(case: Case) -> FlowPrompt:
    return prompt_of_tensors(case["prompt_token"][0], case["prompt_feat"][0], case["embedding"][0])


def merged_noise(case: Case, frames: int) -> torch.Tensor | None:
    if "sine_noise" not in case:
        return None
    return networks()[1].m_source.merge_noise(case["sine_noise"])[:, : frames * CONFIG.vocoder.hop]


def mel_of(case: Case, *, streaming: bool, speed: float = 1.0) -> torch.Tensor:
    """Of the whole utterance, [1, bins, frames]."""
    flow, _ = networks()
    [mel] = flow.generate([prompt_of(case)], [case["token"][0].tolist()], streaming=streaming)
    return change_speed(mel[None], speed)


def effect(case: Case, mel: torch.Tensor) -> float:
    """How far rounding in F0 moves the waveform."""
    _, vocoder = networks()
    f0, noise = vocoder.f0(mel), merged_noise(case, mel.shape[2])

    def wave(moved: torch.Tensor) -> torch.Tensor:
        return vocoder.decode(mel, vocoder.source(moved, noise))

    return rounding_effect(wave(f0), lambda seed: wave(rounded(f0, seed)))


def check(compare: Compare, case: Case, name: str, *, streaming: bool, speed: float = 1.0) -> None:
    mel = mel_of(case, streaming=streaming, speed=speed)
    wave = networks()[1](mel, merged_noise(case, mel.shape[2]))
    compare_waves(compare, name, wave, case[name], effect(case, mel), TOLERANCE)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reference_streaming(case: Case, compare: Compare) -> None:
    flow, vocoder = networks()
    tokens, mel, sent = case["token"][0].tolist(), torch.zeros(CONFIG.flow.mel_bins, 0), 0
    for index, chunk in enumerate(case.settings["chunks"]):
        [new] = flow.generate(
            [prompt_of(case)],
            [tokens[: chunk["tokens_given"]]],
            streaming=chunk["stream"],
            finalize=chunk["finalize"],
        )
        mel = torch.cat([mel, new[:, CONFIG.flow.frames_per_token * chunk["token_offset"] :]], dim=1)
        wave = vocoder(mel[None], merged_noise(case, mel.shape[1]))[:, sent : sent + chunk["samples"]]
        sent += chunk["samples"]
        moved = effect(case, mel[None])
        compare_waves(compare, f"wav_{index}", wave, case[f"wav_{index}"], moved, TOLERANCE)


@pytest.mark.parametrize("case", [case for case in CASES if "wav_offline" in case], ids=str)
def test_reference_offline(case: Case, compare: Compare) -> None:
    check(compare, case, "wav_offline", streaming=False)


@pytest.mark.parametrize(
    ("case", "name"),
    [(case, name) for case in CASES for name in case.tensors if name.startswith("wav_speed")],
    ids=str,
)
def test_reference_speed(case: Case, name: str, compare: Compare) -> None:
    check(compare, case, name, streaming=False, speed=int(name.removeprefix("wav_speed")) / 10)


@pytest.mark.parametrize("hop", [10, 25, 60, 1000])
@pytest.mark.parametrize("case", [case for case in CASES if "wav_all_streaming" in case], ids=str)
def test_our_streaming_is_the_exact_one(case: Case, hop: int, compare: Compare) -> None:
    flow, vocoder = networks()
    token2wav, tokens = (
        Token2Wav(FlowStream(flow, num_pages=16), HiFTStream(vocoder)),
        case["token"][0].tolist(),
    )
    state, waves = token2wav.open(prompt_of(case), noise_seed=None), []
    for start in range(0, len(tokens), hop):
        token2wav.push(state, tokens[start : start + hop], last=start + hop >= len(tokens))
        waves += map(torch.from_numpy, token2wav.advance([state]))
    moved = effect(case, mel_of(case, streaming=True))
    compare_waves(
        compare, "wav_all_streaming", torch.cat(waves)[None], case["wav_all_streaming"], moved, TOLERANCE
    )
