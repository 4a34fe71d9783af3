"""The solvers on an equation with a known solution."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.flow.solvers import ADAMS_BASHFORTH, EULER, CpuSolver
from cosyvoice_runtime.flow.torch.solver import Conditions, FlowSolver
from cosyvoice_runtime.flow.torch.stream import FlowStream
from small_flow import random_flow, random_prompt, random_tokens
from streams import pieces_of, spoken

START = 2.0
EXACT = (START + 1) / math.e
"""At 1, of ``dx/dt = t - x`` from ``START`` on."""


class KnownVelocity:
    """``t - x``, guided or not."""

    projection = SimpleNamespace(weight=torch.zeros(1))

    def time_biases(self, t):
        return t[None, :, None]

    def mask(self, visible):
        return visible

    def __call__(self, x, mu, speaker, prompt, biases, mask, past):
        return biases - x


def solved(name: str, steps: int) -> float:
    solver = FlowSolver(KnownVelocity(), cfg_rate=0.7, num_steps=steps, name=name)
    none = torch.zeros(1, 1, 1)
    return solver.solve(torch.full((1, 1, 1), START), Conditions(none, none[0], none)).item()


def solved_in_numpy(name: str, steps: int) -> float:
    solver, x, before = CpuSolver(name, steps), torch.full((1, 1, 1), START).numpy(), None
    for step, time in enumerate(solver.times):
        velocity = time - x
        x, before = solver.moved(x, velocity, before, step), velocity
    return x.item()


def test_errors_of_euler_shrink_as_its_steps_and_those_of_adams_bashforth_as_their_squares():
    for name, least, most in ((EULER, 1.8, 2.3), (ADAMS_BASHFORTH, 3.5, 4.5)):
        errors = [abs(solved(name, steps) - EXACT) for steps in (20, 40)]
        assert least < errors[0] / errors[1] < most, name


def test_one_step_of_adams_bashforth_is_eulers():
    assert solved(ADAMS_BASHFORTH, 1) == pytest.approx(solved(EULER, 1))


@pytest.mark.parametrize("name", [EULER, ADAMS_BASHFORTH])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_numpy_takes_torchs_steps(name, steps):
    assert solved_in_numpy(name, steps) == pytest.approx(solved(name, steps), abs=1e-6)


def test_another_solver_is_refused_by_its_name():
    with pytest.raises(InvalidInput, match="solver: 'heun' is not accepted; one of euler, adams_bashforth"):
        solved("heun", 10)
    with pytest.raises(InvalidInput, match="one of euler, adams_bashforth"):
        CpuSolver("heun", 10)


@pytest.mark.parametrize("pages", [60, 3])
def test_streams_of_adams_bashforth_give_the_mel_of_whole_utterances(pages):
    flow = random_flow(solver=ADAMS_BASHFORTH)
    stream = FlowStream(flow, pages)
    prompts = [random_prompt(31, seed) for seed in range(3)]
    tokens = [random_tokens(length, length) for length in (20, 60, 83)]
    mels = spoken(stream, prompts, [pieces_of(row, [10, 40]) for row in tokens])
    assert bool(stream.recomputing) == (pages == 3)
    for prompt, row, mel in zip(prompts, tokens, mels, strict=True):
        torch.testing.assert_close(mel, flow.generate([prompt], [row])[0], atol=1e-4, rtol=0)
