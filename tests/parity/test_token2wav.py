"""Upstream's chunk schedule, flow calls and joins, from tokens to waveform.

The phase is a running sum of F0, so float32 rounding in F0, which differs from machine to machine, moves
the waveform by more than the tolerance of its parts (test_vocoder.py holds those tightly). What such
rounding does is measured in each case, and the waveform must be as near to the reference as that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest
import torch
from goldens import Case, cases, config, tensors

from cosyvoice_runtime.flow.flow import Flow, FlowPrompt
from cosyvoice_runtime.pipeline.schedule import OneChunk, Portions, Schedule, UpstreamSchedule
from cosyvoice_runtime.pipeline.session import Session
from cosyvoice_runtime.pipeline.upstream import UpstreamToken2Wav
from cosyvoice_runtime.vocoder.hift import HiFT
from cosyvoice_runtime.vocoder.upstream import fade_window

TOLERANCE = 1e-3
F0_ROUNDING = 1e-6
"""Of the largest F0: what ten float32 operations in a row leave."""


class RecordedNoise(UpstreamToken2Wav):
    """Upstream's token2wav with the noise that was drawn when the case was recorded."""

    def __init__(self, flow: Flow, vocoder: HiFT, draws: list[torch.Tensor]) -> None:
        super().__init__(flow, vocoder)
        self.draws = draws

    def _noise(self, state, frames):
        return self.draws.pop(0) if self.draws else None


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


def chunks_of(case: Case, schedule: Schedule, speed: float = 1.0) -> list[torch.Tensor]:
    prompt = FlowPrompt(case["prompt_token"][0].long(), case["prompt_feat"][0], case["embedding"][0])
    synthesis = RecordedNoise(*networks(), recorded(case, "sine_noise_"))
    portions = Portions(schedule, len(prompt.tokens), config().flow.lookahead_tokens)
    with Session(synthesis, synthesis.open(prompt, None, speed), portions) as session:
        return [chunk[None] for chunk in session.chunks(case["token"][0].tolist())]


def chunks_and_rounding(
    case: Case, schedule: Schedule, speed: float = 1.0
) -> tuple[list[torch.Tensor], list[Effect]]:
    """The chunks, and what rounding in F0 does to each."""
    _, vocoder = networks()
    chunks = chunks_of(case, schedule, speed)
    effects = [Effect(TOLERANCE, TOLERANCE)] * len(chunks)
    for seed in range(4):
        vocoder.rounding = torch.Generator().manual_seed(seed)
        for index, moved in enumerate(chunks_of(case, schedule, speed)):
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
def test_upstream_streaming(case, compare):
    chunks, effects = chunks_and_rounding(case, UpstreamSchedule())
    waves = recorded(case, "wav_")
    assert len(chunks) == len(waves) == len(case.settings["chunks"])
    for index, (chunk, expected) in enumerate(zip(chunks, waves, strict=True)):
        compare_waves(compare, f"wav_{index}", chunk, expected, effects[index])


@pytest.mark.parametrize("case", [case for case in cases("token2wav") if "wav_offline" in case], ids=str)
def test_upstream_offline(case, compare):
    [wave], [effect] = chunks_and_rounding(case, OneChunk())
    compare_waves(compare, "wav_offline", wave, case["wav_offline"], effect)


@pytest.mark.parametrize(
    ("case", "name"),
    [(case, name) for case in cases("token2wav") for name in case.tensors if name.startswith("wav_speed")],
    ids=str,
)
def test_upstream_speed(case, name, compare):
    speed = int(name.removeprefix("wav_speed")) / 10
    [wave], [effect] = chunks_and_rounding(case, OneChunk(), speed)
    compare_waves(compare, name, wave, case[name], effect)
