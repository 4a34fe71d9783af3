"""The fused kernels of each family's flow, picked by the class of its configuration."""

from __future__ import annotations

from collections.abc import Callable

from cosyvoice_runtime.checkpoint.config import EstimatorConfig
from cosyvoice_runtime.checkpoint.config_cosyvoice3 import DiTConfig
from cosyvoice_runtime.flow.flow import Flow
from cosyvoice_runtime.flow.paged_call import PagedSolver
from cosyvoice_runtime.kernels.fused_dit import FusedDiTSolver
from cosyvoice_runtime.kernels.fused_solver import FusedSolver

_SOLVERS: dict[type, Callable[[Flow, bool, int | None], PagedSolver]] = {
    EstimatorConfig: FusedSolver.of,
    DiTConfig: lambda flow, chained, _: FusedDiTSolver.of(flow, chained),
}


def fused_solver(flow: Flow, chained: bool = True, multiprocessors: int | None = None) -> PagedSolver:
    """Of a flow on a GPU that the kernels fit (``kernels/choice.py``).

    Args:
        chained: kernels start while the one before ends.
        multiprocessors: that the kernels have; None: those of the whole GPU.
    """
    return _SOLVERS[type(flow.config.estimator)](flow, chained, multiprocessors)
