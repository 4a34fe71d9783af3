"""The reference's chunk schedule, flow calls and joins, from tokens to waveform.

Each waveform must be as near to the reference as rounding in F0 allows (rounding.py), measured in each case.
test_flow.py holds the mel tightly, and test_vocoder.py the waveform of the reference's own mel and F0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
import torch
from goldens import Case, Compare, cases, config, tensors
from reference_streaming import fade_window, streamed, whole
from rounding import DRAWS, compare_waves, rounded, rounding_effect

from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.vocoder.torch.hift import HiFT
from prompts import prompt_of_tensors

Way = Callable[..., list[torch.Tensor]]
"""From networks, prompt, tokens and noise to chunks of samples."""
TOLERANCE = 1e-3


class RoundedHiFT(HiFT):
    """The vocoder with its F0 moved within the rounding of float32."""

    rounding: int | None = None

    def f0(self, mel: torch.Tensor) -> torch.Tensor:
        exact = super().f0(mel)
        return exact if self.rounding is None else rounded(exact, self.rounding)


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
    prompt = prompt_of_tensors(case["prompt_token"][0], case["prompt_feat"][0], case["embedding"][0])
    tokens, noise = case["token"][0].tolist(), recorded(case, "sine_noise_")
    return [chunk[None] for chunk in way(*networks(), prompt, tokens, noise)]


def in_one_chunk(*arguments: Any, speed: float = 1.0) -> list[torch.Tensor]:
    return [whole(*arguments, speed=speed)]


def chunks_of_draw(case: Case, way: Way, seed: int) -> list[torch.Tensor]:
    """The same with F0 moved within its rounding."""
    _, vocoder = networks()
    vocoder.rounding = seed
    try:
        return chunks_of(case, way)
    finally:
        vocoder.rounding = None


def check(compare: Compare, case: Case, way: Way, expected: dict[str, torch.Tensor]) -> None:
    """The chunks are those expected, by name, as far as rounding in F0 allows."""
    chunks = chunks_of(case, way)
    moved = [chunks_of_draw(case, way, seed) for seed in range(DRAWS)]
    for index, (chunk, (name, wave)) in enumerate(zip(chunks, expected.items(), strict=True)):
        effect = rounding_effect(chunk, lambda seed, index=index: moved[seed][index])
        compare_waves(compare, name, chunk, wave, effect, TOLERANCE)


def test_fade_window(compare):
    recorded_window = tensors("token2wav")["fade_window"]
    compare("fade_window", fade_window(len(recorded_window) // 2), recorded_window, 1e-6)


@pytest.mark.parametrize("case", cases("token2wav"), ids=str)
def test_reference_streaming(case, compare):
    waves = recorded(case, "wav_")
    assert len(waves) == len(case.settings["chunks"])
    check(compare, case, streamed, {f"wav_{index}": wave for index, wave in enumerate(waves)})


@pytest.mark.parametrize("case", [case for case in cases("token2wav") if "wav_offline" in case], ids=str)
def test_reference_offline(case, compare):
    check(compare, case, in_one_chunk, {"wav_offline": case["wav_offline"]})


@pytest.mark.parametrize(
    ("case", "name"),
    [(case, name) for case in cases("token2wav") for name in case.tensors if name.startswith("wav_speed")],
    ids=str,
)
def test_reference_speed(case, name, compare):
    speed = int(name.removeprefix("wav_speed")) / 10
    check(compare, case, partial(in_one_chunk, speed=speed), {name: case[name]})
