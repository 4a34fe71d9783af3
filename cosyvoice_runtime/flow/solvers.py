"""How the flow's solution goes from noise to mel: times of its evaluations, and what each step makes of them.

``euler`` follows the velocity at a step's start, over the published cosine schedule. ``adams_bashforth`` (of
second order) follows the line through this velocity and the one before, over even times: seven evaluations
come as near to the exact solution as ten of ``euler``, and five as six. A distilled flow has its own times.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.errors import InvalidInput

EULER, ADAMS_BASHFORTH = "euler", "adams_bashforth"
SOLVERS = (EULER, ADAMS_BASHFORTH)


def require_solver(name: str, meanflow: bool = False, field: str = "solver") -> None:
    """Raise InvalidInput unless there is a solver of this name, and it follows the velocities.

    Args:
        meanflow: they are means of a step.
        field: for the error.
    """
    if name not in SOLVERS:
        raise InvalidInput(field, name, f"one of {', '.join(SOLVERS)}")
    if meanflow and name != EULER:
        raise InvalidInput(field, name, f"{EULER}: by flow_schedule.json, velocities are means of a step")


NUM_STEPS = 10
"""Evaluations of the published flow."""


def step_count(num_steps: int | None, times: Sequence[float], field: str = "ode_steps") -> int:
    """The number of evaluations: those of a flow's own times, or as many as are asked for, or the published.

    Args:
        field: for the error.

    Raises:
        InvalidInput: another number than that of the times, or none.
    """
    if num_steps is not None and num_steps < 1:
        raise InvalidInput(field, num_steps, "a whole number from 1")
    if times and num_steps not in (None, len(times)):
        limit = f"{len(times)} or none given: flow_schedule.json of the checkpoint has the times of each step"
        raise InvalidInput(field, num_steps, limit)
    return len(times) or num_steps or NUM_STEPS


def given_times(times: Sequence[float]) -> tuple[Floats, Floats]:
    """Times of evaluations and step sizes, the last one to 1: float32 ``[n]``."""
    return np.array(times, np.float32), np.diff([*times, 1.0]).astype(np.float32)


def ends_of(times: Floats) -> Floats:
    """Where the steps from these times end, float32 ``[n]``."""
    return np.append(times[1:], np.float32(1))


def even_times(num_steps: int) -> tuple[Floats, Floats]:
    """Times of evaluations ``k / n`` and step sizes, float32 ``[n]``."""
    times = (np.arange(num_steps) / num_steps).astype(np.float32)
    return times, np.full(num_steps, 1 / num_steps, np.float32)


def slopes(solver: str, step_sizes: Floats) -> Floats:
    """How much of the change from the velocity before each step adds to its velocity, float32 ``[n]``.

    None for ``euler``, nor at the first step: it has none before it.
    """
    found = np.zeros_like(step_sizes)
    if solver == ADAMS_BASHFORTH:
        found[1:] = step_sizes[1:] / (2 * step_sizes[:-1])
    return found


class CpuSolver:
    """A solver in numpy.

    Args:
        name: one of ``SOLVERS``.
        num_steps: None for those of ``times``, or the published number.
        times: of a distilled flow; empty for those of the solver.

    Attributes:
        times: times of the evaluations, float32 ``[n]``.

    Raises:
        InvalidInput: another name, or another number of steps than that of ``times``.
    """

    def __init__(self, name: str, num_steps: int | None = None, times: Sequence[float] = ()) -> None:
        require_solver(name)
        count = step_count(num_steps, times)
        if times:
            self.times, self._sizes = given_times(times)
        else:
            self.times, self._sizes = (accumulated_times if name == EULER else even_times)(count)
        self._slopes = slopes(name, self._sizes)

    def moved(self, mel: Floats, velocity: Floats, before: Floats | None, step: int) -> Floats:
        """The solution after a step from ``mel``; ``before`` is the velocity of the step before, if there is
        one."""
        slope = self._slopes[step]
        if before is not None and slope:
            velocity = velocity + slope * (velocity - before)
        return mel + self._sizes[step] * velocity


def accumulated_times(num_steps: int) -> tuple[Floats, Floats]:
    """Times fed to the estimator and step sizes of the cosine schedule ``1 - cos(k / n * pi / 2)``.

    In the published order of float32 roundings.
    """
    size = np.float32(1) / np.float32(num_steps)
    steps = np.arange(num_steps + 1, dtype=np.float32)
    # as torch.linspace: from both ends
    line = np.where(steps < (num_steps + 1) // 2, size * steps, 1 - size * (num_steps - steps))
    schedule = 1 - np.cos(line.astype(np.float32) * np.float32(0.5) * np.float32(np.pi))
    time, times, sizes = schedule[0], [], []
    for following in schedule[1:]:
        sizes.append(following - time)
        times.append(time)
        time = time + sizes[-1]
    return np.array(times, np.float32), np.array(sizes, np.float32)
