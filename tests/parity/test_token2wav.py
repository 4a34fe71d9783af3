"""The reference's chunk schedule, flow calls and joins, from tokens to waveform.

The phase is a running sum of F0, so float32 rounding in F0, which differs from machine to machine, moves
the waveform by more than the tolerance of its parts (test_vocoder.py holds those tightly). What such
rounding does is measured in each case, and the waveform must be as near to the reference as that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pytest
import torch
from goldens import Case, cases, config, tensors
from reference_streaming import fade_window, streamed, whole

from cosyvoice_runtime.flow.flow import Flow, FlowPrompt
from cosyvoice_runtime.vocoder.hift import HiFT

Way = Callable[..., list[torch.Tensor]]
"""From networks, prompt, tokens and noise to chunks of samples."""
TOLERANCE = 1e-3
F0_ROUNDING = 1e-6
"""Of the largest F0: what ten float32 operations in a row leave."""


def rms(difference: torch.Tensor) -> torch.Tensor:
    return difference.square().mean().sqrt()


@dataclass(frozen=True)
class Effect:
    """Largest and root-mean-square change of a waveform."""

    largest: float
    rms: float

    def joined(self, change: torch.Tensor) -> Effect:
        return Effect(max(self.largest, change.abs().max().item()), max(self.rms, rms(change).item()))


class RoundedHiFT(HiFT):
    """The vocoder with its F0 moved within the rounding of float32."""

    rounding: torch.Generator | None = None

    def f0(self, mel: torch.Tensor) -> torch.Tensor:
        exact = super().f0(mel)
        if self.rounding is None:
            return exact
        draw = 2 * torch.rand(exact.shape, generator=self.rounding) - 1
        return exact + F0_ROUNDING * exact.max() * draw


@cache
def networks() -> tuple[Flow, RoundedHiFT]:
    return (
        Flow.from_tensors(config().flow, tensors("tiny_flow")),
        RoundedHiFT.from_tensors(config().vocoder, tensors("tiny_hift")),
    )


def recorded(case: Case, prefix: str) -> list[torch.Tensor]:
    names = [name for name in case.tensors if name.removeprefix(prefix).isdigit()]
    return [case[name] for name in sorted(names, key=lambda name: int(name.removeprefix(prefix)))]


def chunks_of(case: Case, way: Way) -> list[torch.Tensor]:
    """With the noise that was drawn when the case was recorded."""
    prompt = FlowPrompt(case["prompt_token"][0].long(), case["prompt_feat"][0], case["embedding"][0])
    tokens, noise = case["token"][0].tolist(), recorded(case, "sine_noise_")
    return [chunk[None] for chunk in way(*networks(), prompt, tokens, noise)]


def in_one_chunk(*arguments: Any, speed: float = 1.0) -> list[torch.Tensor]:
    return [whole(*arguments, speed=speed)]


def chunks_and_rounding(case: Case, way: Way) -> tuple[list[torch.Tensor], list[Effect]]:
    """The chunks, and what rounding in F0 does to each."""
    _, vocoder = networks()
    chunks = chunks_of(case, way)
    effects = [Effect(TOLERANCE, TOLERANCE)] * len(chunks)
    for seed in range(4):
        vocoder.rounding = torch.Generator().manual_seed(seed)
        for index, moved in enumerate(chunks_of(case, way)):
            effects[index] = effects[index].joined(moved - chunks[index])
    vocoder.rounding = None
    return chunks, effects


def compare_waves(compare, name: str, wave: torch.Tensor, expected: torch.Tensor, effect: Effect) -> None:
    compare(name, wave, expected, effect.largest)
    compare(f"{name} rms", rms(wave - expected), torch.tensor(0.0), effect.rms)


def test_fade_window(compare):
    recorded_window = tensors("token2wav")["fade_window"]
    compare("fade_window", fade_window(len(recorded_window) // 2), recorded_window, 1e-6)


@pytest.mark.parametrize("case", cases("token2wav"), ids=str)
def test_reference_streaming(case, compare):
    chunks, effects = chunks_and_rounding(case, streamed)
    waves = recorded(case, "wav_")
    assert len(chunks) == len(waves) == len(case.settings["chunks"])
    for index, (chunk, expected) in enumerate(zip(chunks, waves, strict=True)):
        compare_waves(compare, f"wav_{index}", chunk, expected, effects[index])


@pytest.mark.parametrize("case", [case for case in cases("token2wav") if "wav_offline" in case], ids=str)
def test_reference_offline(case, compare):
    [wave], [effect] = chunks_and_rounding(case, in_one_chunk)
    compare_waves(compare, "wav_offline", wave, case["wav_offline"], effect)


@pytest.mark.parametrize(
    ("case", "name"),
    [(case, name) for case in cases("token2wav") for name in case.tensors if name.startswith("wav_speed")],
    ids=str,
)
def test_reference_speed(case, name, compare):
    speed = int(name.removeprefix("wav_speed")) / 10
    [wave], [effect] = chunks_and_rounding(case, partial(in_one_chunk, speed=speed))
    compare_waves(compare, name, wave, case[name], effect)
