"""The fused kernels of each family's flow, picked by the class of its configuration."""

from __future__ import annotations

from collections.abc import Callable

from cosyvoice_runtime.checkpoint.config_flow import DiTConfig, EstimatorConfig
from cosyvoice_runtime.flow.kernels.fused_dit import FusedDiTSolver
from cosyvoice_runtime.flow.kernels.fused_solver import FusedSolver
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.paged_call import PagedSolver

_SOLVERS: dict[type, Callable[[Flow, bool], PagedSolver]] = {
    EstimatorConfig: FusedSolver.of,
    DiTConfig: FusedDiTSolver.of,
}


def fused_solver(flow: Flow, chained: bool = True) -> PagedSolver:
    """Fused solver of a flow on a GPU that the kernels fit (``flow/kernels/choice.py``), for all of that GPU.

    Args:
        chained: kernels start while the one before ends.
    """
    return _SOLVERS[type(flow.config.estimator)](flow, chained)
