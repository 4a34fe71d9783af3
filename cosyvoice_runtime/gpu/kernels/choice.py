"""The choice between fused kernels and plain modules."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.gpu.nvidia import KERNELS_FROM

if TYPE_CHECKING:
    import torch

Kernels = Literal["auto", "fused", "plain"]
LEAST_DEPTH = 16
"""The smallest inner dimension of tensor cores."""

_log = logging.getLogger(__name__)


def fused_chosen(kernels: str, work: str, device: torch.device, obstacle: str | None) -> bool:
    """Whether the fused kernels are used; the log says which modules run, and why.

    Args:
        kernels: "auto" uses them wherever they run, "fused" requires them, "plain" never uses them.
        work: what they compute, for the log.
        obstacle: the reason why they cannot run, if there is one.

    Raises:
        InvalidInput: the value is unknown, or is "fused" where they cannot run.
    """
    if kernels not in get_args(Kernels):
        raise InvalidInput("kernels", kernels, f"one of {', '.join(get_args(Kernels))}")
    if kernels == "fused" and obstacle is not None:
        raise InvalidInput("kernels", kernels, f"the fused kernels cannot run: {obstacle}")
    if kernels == "plain":
        obstacle = "asked for"
    way = "fused" if obstacle is None else f"plain ({obstacle})"
    _log.info("kernels of %s on %s: %s", work, device, way)
    return obstacle is None


def machine_obstacle(device: torch.device, dtype: torch.dtype, wanted: torch.dtype) -> str | None:
    """The reason why fused kernels of a data type cannot run on a device; None if they can."""
    import torch  # Whether Triton can compile is asked before torch is imported.

    if device.type != "cuda":
        return f"they need an NVIDIA GPU, not {device.type}"
    if dtype != wanted:
        return f"they are made and measured for {wanted}, not {dtype}".replace("torch.", "")
    if torch.cuda.get_device_capability(device) < KERNELS_FROM:
        return "the GPU's compute capability is below {}.{}".format(*KERNELS_FROM)
    return triton_obstacle()


def triton_obstacle() -> str | None:
    """The reason why the Triton language can't compile kernels; it needs the machine's C compiler."""
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    if not (os.environ.get("CC") or any(map(shutil.which, ("gcc", "clang")))):
        return "triton finds no C compiler (gcc)"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "triton finds no Python.h (Debian's package python3-dev)"
    return None
