"""Whether the fused kernels can compute a flow, and those of its family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cosyvoice_runtime.checkpoint.config_flow import DiTConfig, EncoderConfig, EstimatorConfig
from cosyvoice_runtime.families import flow_parts, load
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.gpu.kernels.choice import LEAST_DEPTH, machine_obstacle

if TYPE_CHECKING:
    from cosyvoice_runtime.flow.kernels.fused_solver import FusedPagedSolver
    from cosyvoice_runtime.gpu.kernels.rows import GpuRow


def solver_obstacle(
    device: torch.device, dtype: torch.dtype, config: EstimatorConfig | DiTConfig
) -> str | None:
    """Why the fused kernels cannot take the flow's steps; None if they can."""
    return estimator_obstacle(config) or machine_obstacle(device, dtype, torch.float16)


def estimator_obstacle(config: EstimatorConfig | DiTConfig) -> str | None:
    """Why the fused kernels cannot compute this estimator, on whatever GPU; None if they can."""
    parts = flow_parts(config)
    if parts.fused_solver is None:
        return f"there are none for a {type(config).__name__}"
    for name in parts.powers_of_two:
        size = getattr(config, name)
        if size & (size - 1):
            return f"{name} of the estimator is {size}, no power of two"
    return None


def encoder_obstacle(device: torch.device, dtype: torch.dtype, config: EncoderConfig) -> str | None:
    """Why the fused kernel cannot attend in the flow's encoder; None if it can."""
    obstacle = machine_obstacle(device, dtype, torch.float16)
    if obstacle is not None:
        return obstacle
    size = config.head_dim
    if size & (size - 1) or size < LEAST_DEPTH:
        return f"a head of the encoder has {size} values: no power of two, or too few"
    return None


def fused_solver(flow: Flow, row: GpuRow | None = None) -> FusedPagedSolver[Any]:
    """Fused solver of a flow on a GPU that the kernels fit, for all of that GPU.

    Args:
        row: of the GPU; None: that of the flow's device.
    """
    place = flow_parts(flow.config.estimator).fused_solver
    assert place is not None, "solver_obstacle tells of flows without kernels"
    solver: FusedPagedSolver[Any] = load(place)(flow, row)
    return solver
