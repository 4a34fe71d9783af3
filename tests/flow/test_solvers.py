"""The solvers on an equation with a known solution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.flow.solvers import ADAMS_BASHFORTH, EULER, SOLVERS, CpuSolver
from cosyvoice_runtime.flow.torch.solver import Conditions, FlowSolver
from cosyvoice_runtime.flow.torch.stream import FlowStream
from small_flow import CONFIG, COSYVOICE3, random_flow, random_prompt, random_tokens
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


def solved(name: str, steps: int | None, times: Sequence[float] = ()) -> float:
    solver = FlowSolver(KnownVelocity(), cfg_rate=0.7, num_steps=steps, name=name, times=times)
    none = torch.zeros(1, 1, 1)
    return solver.solve(torch.full((1, 1, 1), START), Conditions(none, none[0], none)).item()


def solved_in_numpy(name: str, steps: int | None, times: Sequence[float] = ()) -> float:
    solver, x, before = CpuSolver(name, steps, times), torch.full((1, 1, 1), START).numpy(), None
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


def test_steps_of_given_times_go_from_one_to_the_next_and_then_to_1():
    after_first = START + 0.4 * (0 - START)
    by_hand = after_first + 0.6 * (0.4 - after_first)
    for solve in (solved, solved_in_numpy):
        assert solve(EULER, None, [0, 0.4]) == pytest.approx(by_hand)
        assert solve(EULER, 2, [0, 0.4]) == pytest.approx(by_hand)
        velocity = 0.4 - after_first
        line = velocity + 0.6 / (2 * 0.4) * (velocity - (0 - START))
        assert solve(ADAMS_BASHFORTH, None, [0, 0.4]) == pytest.approx(after_first + 0.6 * line)
        assert solve(EULER, None, [0]) == pytest.approx(0.0)


def test_without_times_or_a_number_there_are_the_ten_published_steps():
    assert solved(EULER, None) == solved(EULER, 10)
    assert solved_in_numpy(EULER, None) == solved_in_numpy(EULER, 10)


@pytest.mark.parametrize("solve", [solved, solved_in_numpy])
def test_another_number_of_steps_than_of_times_is_refused(solve):
    with pytest.raises(InvalidInput, match=r"ode_steps: 3 .* 2 or none given: flow_schedule\.json .* times"):
        solve(EULER, 3, [0, 0.4])
    with pytest.raises(InvalidInput, match=r"ode_steps: 0 .* a whole number from 1"):
        solve(EULER, 0)


@pytest.mark.parametrize("config", [CONFIG, COSYVOICE3], ids=["cosyvoice2", "cosyvoice3"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_flow_without_guidance_computes_one_row_and_speaks_as_with_next_to_none(config, solver):
    none, tiny = (
        random_flow(
            config=replace(config, cfg_rate=rate, times=(0.0, 0.2, 0.5)), solver=solver, num_steps=None
        )
        for rate in (0.0, 1e-9)
    )
    prompt, tokens = random_prompt(31, 1), random_tokens(60, 2)
    [expected] = tiny.generate([prompt], [tokens])
    stream = FlowStream(none, 20)
    assert stream.pool.estimator.rows == 1
    torch.testing.assert_close(none.generate([prompt], [tokens])[0], expected, atol=1e-4, rtol=0)
    [mel] = spoken(stream, [prompt], [pieces_of(tokens, [10, 40])])
    torch.testing.assert_close(mel, expected, atol=1e-4, rtol=0)


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
