"""The fused kernels of a flow, picked by the class of its configuration."""

from __future__ import annotations

from cosyvoice_runtime.families import flow_parts, load
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.paged_call import PagedSolver


def fused_solver(flow: Flow, chained: bool = True) -> PagedSolver:
    """Fused solver of a flow on a GPU that the kernels fit (``flow/kernels/choice.py``), for all of that GPU.

    Args:
        chained: kernels start while the one before ends.
    """
    place = flow_parts(flow.config.estimator).fused_solver
    assert place is not None, "solver_obstacle tells of flows without kernels"
    solver: PagedSolver = load(place)(flow, chained)
    return solver
