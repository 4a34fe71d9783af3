#!/usr/bin/env python3
"""What few evaluations of the flow's estimator lose: distance of the mel to that of 100 Euler steps.

    python benchmarks/flow_steps.py --sentences 8

The demo voice's own speech tokens of held-out sentences, whole utterances, on torch. An evaluation is of both
guidance rows; a step without guidance counts half. Distance is the mean of the absolute differences of
log-mels.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cosyvoice_runtime.flow.flow import Flow
from cosyvoice_runtime.flow.layers import NoPast
from cosyvoice_runtime.pipeline import SpeechRequest, Synthesizer
from cosyvoice_runtime.pipeline.flow_prompt import flow_prompt
from cosyvoice_runtime.wave.prompt import FlowPrompt, TokenSpan

DEMO_VOICE = Path(__file__).resolve().parent.parent / "demo_voice"
TRUTH, LEAST_WORDS = 100, 5
Velocity = Callable[[Tensor, float], Tensor]
Solver = Callable[[Velocity, Tensor, Sequence[float]], Tensor]


def euler(velocity: Velocity, x: Tensor, times: Sequence[float]) -> Tensor:
    for start, end in pairwise(times):
        x = x + (end - start) * velocity(x, start)
    return x


def midpoint(velocity: Velocity, x: Tensor, times: Sequence[float]) -> Tensor:
    for start, end in pairwise(times):
        half = (end - start) / 2
        x = x + 2 * half * velocity(x + half * velocity(x, start), start + half)
    return x


def heun(velocity: Velocity, x: Tensor, times: Sequence[float]) -> Tensor:
    for start, end in pairwise(times):
        first = velocity(x, start)
        x = x + (end - start) / 2 * (first + velocity(x + (end - start) * first, end))
    return x


def adams_bashforth(velocity: Velocity, x: Tensor, times: Sequence[float]) -> Tensor:
    """Of second order, with steps of any sizes; the first is Euler's."""
    before: tuple[Tensor, float] | None = None
    for start, end in pairwise(times):
        here, size = velocity(x, start), end - start
        slope = 0 * here if before is None else (here - before[0]) / before[1]
        x = x + size * (here + size / 2 * slope)
        before = here, size
    return x


def cosine(steps: int) -> list[float]:
    return [1 - math.cos(step / steps * math.pi / 2) for step in range(steps + 1)]


def uniform(steps: int) -> list[float]:
    return [step / steps for step in range(steps + 1)]


def power(steps: int) -> list[float]:
    return [(step / steps) ** 1.5 for step in range(steps + 1)]


WAYS: list[tuple[str, Solver, Callable[[int], list[float]], tuple[int, ...]]] = [
    ("Euler, cosine (as published)", euler, cosine, (10, 8, 6, 5, 4)),
    ("Euler, power 1.5", euler, power, (10, 6)),
    ("Euler, even", euler, uniform, (10, 6)),
    ("midpoint, cosine", midpoint, cosine, (5, 3)),
    ("Heun, cosine", heun, cosine, (5, 3)),
    ("Adams-Bashforth, cosine", adams_bashforth, cosine, (10, 6)),
    ("Adams-Bashforth, even", adams_bashforth, uniform, (10, 8, 7, 6, 5)),
]
GUIDED = (0.25, 0.5, 0.8)
"""Times until which the ten published steps are guided."""


class Utterance:
    """One utterance's flow from noise on, with its evaluations counted."""

    def __init__(self, flow: Flow, prompt: FlowPrompt, tokens: Sequence[int]) -> None:
        everything = np.concatenate([prompt.tokens, np.array(tokens, np.int64)])
        span = TokenSpan(prompt, 0, len(everything), everything)
        attention = flow.attention_of_whole([span], streaming=True)
        given, present = torch.from_numpy(everything)[None], torch.ones(1, len(everything))
        ahead = torch.zeros(1, flow.config.lookahead_tokens)
        mu = flow.encode(torch.cat([given, ahead.long()], 1), torch.cat([present, ahead], 1) > 0, attention)
        mel = torch.zeros(1, mu.shape[1], flow.config.mel_bins)
        spoken = flow.prompt_frames(span, mu.shape[1])
        mel[0, : len(spoken)] = torch.tensor(spoken)
        self.alone = flow.conditions(mu, torch.tensor(prompt.speaker)[None], mel)
        self.both = flow.solver.guided(self.alone)
        self.mask = flow.solver.mask(attention.estimator)
        self.noise = flow.noise(torch.tensor([0]), mu.shape[1])
        self.flow, self.first, self.evaluations = flow, len(spoken), 0.0

    def velocity(self, x: Tensor, time: float, guided_until: float = 2.0) -> Tensor:
        estimator, rate = self.flow.network.estimator, self.flow.config.cfg_rate
        biases = estimator.time_biases(torch.tensor([time]))
        self.evaluations += 1 if time < guided_until else 0.5
        if time >= guided_until:
            mask, given = None if self.mask is None else self.mask[:1], self.alone
            return estimator(x, given.mu, given.speaker, given.prompt, biases, mask, NoPast())
        given = self.both
        twice = torch.cat([x, x])
        both = estimator(twice, given.mu, given.speaker, given.prompt, biases, self.mask, NoPast())
        conditioned, unconditioned = both.chunk(2)
        return (1 + rate) * conditioned - rate * unconditioned


def spoken(synthesizer: Synthesizer, sentences: int) -> Iterator[tuple[FlowPrompt, list[int]]]:
    """Prompts and the speech tokens of sentences."""
    pushed: list[int] = []
    push = synthesizer.token2wav.push

    def noted(state: object, tokens: Sequence[int], last: bool = False) -> None:
        pushed.extend(tokens)
        push(state, tokens, last)  # type: ignore[arg-type]

    synthesizer.token2wav.push = noted  # type: ignore[assignment]
    texts = json.loads((DEMO_VOICE / "held_out.json").read_text("utf-8"))
    long = [text for text in texts if len(text.split()) >= LEAST_WORDS][:sentences]
    voices = list(synthesizer.speakers.values())
    for number, text in enumerate(long):
        pushed.clear()
        voice = voices[number % len(voices)]
        for _ in synthesizer.synthesize(SpeechRequest(text, voice, seed=number)):
            pass
        yield flow_prompt(voice), list(pushed)


@torch.inference_mode()
def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sentences", type=int, default=8)
    options = parser.parse_args()
    torch.set_num_threads(1)
    synthesizer = Synthesizer.from_checkpoint(DEMO_VOICE)
    flow = synthesizer.token2wav.flow.flow
    assert isinstance(flow, Flow)
    utterances = [Utterance(flow, *each) for each in spoken(synthesizer, options.sentences)]
    truths = [euler(each.velocity, each.noise, cosine(TRUTH)) for each in utterances]

    def show(name: str, mel_of: Callable[[Utterance], Tensor]) -> None:
        distances, evaluations = [], 0.0
        for each, truth in zip(utterances, truths, strict=True):
            each.evaluations = 0.0
            distances.append((mel_of(each) - truth)[:, each.first :].abs().mean().item())
            evaluations += each.evaluations
        print(f"| {name} | {evaluations / len(utterances):g} | {np.mean(distances):.3f} |", flush=True)

    print("| way | evaluations | distance |\n|---|---|---|")
    for name, solver, schedule, counts in WAYS:
        for steps in counts:
            times = schedule(steps)
            show(name, lambda each, s=solver, t=times: s(each.velocity, each.noise, t))  # type: ignore[misc]
    for until in GUIDED:
        show(
            f"Euler, cosine, guided until {until:g}",
            lambda each, u=until: euler(  # type: ignore[misc]
                lambda x, time: each.velocity(x, time, u), each.noise, cosine(10)
            ),
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
