"""How the flow's solution goes from noise to mel: times of its evaluations, and what each step makes of them.

``euler`` follows the velocity at a step's start, over the published cosine schedule. ``adams_bashforth`` (of
second order) follows the line through this velocity and the one before, over even times: seven evaluations
come as near to the exact solution as ten of ``euler``, and five as six.
"""

from __future__ import annotations

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.errors import InvalidInput

EULER, ADAMS_BASHFORTH = "euler", "adams_bashforth"
SOLVERS = (EULER, ADAMS_BASHFORTH)


def require_solver(name: str) -> None:
    """
    Raises:
        InvalidInput: there is none of this name.
    """
    if name not in SOLVERS:
        raise InvalidInput("solver", name, f"one of {', '.join(SOLVERS)}")


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
