"""A GPU's multiprocessors in two parts: what is launched into a part's stream runs there and nowhere else.

Two kinds of work side by side on a whole GPU wait for each other's kernels; in parts neither notices the
other. The parts are green contexts of the CUDA driver, from 12.5 on:
https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__GREEN__CONTEXTS.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from cosyvoice_runtime.errors import CosyVoiceError

FEWEST = 8
"""Multiprocessors of a part, and what its number is a multiple of, on GPUs of compute capability 9.0."""


class GpuPartsError(CosyVoiceError):
    """The GPU can't be divided; the message says why."""


@dataclass(frozen=True, eq=False)
class GpuPart:
    """
    Attributes:
        stream: whose work runs on the part, graphs that were captured in it included, wherever they are
            replayed.
        multiprocessors: of the part.
    """

    stream: torch.cuda.Stream
    multiprocessors: int


@dataclass(frozen=True, eq=False)
class GpuParts:
    """Both parts; together they are the GPU.

    Attributes:
        small_too: the small one once more, for work that neither waits for that of ``small`` nor makes it
            wait, but shares multiprocessors with it.
    """

    small: GpuPart
    large: GpuPart
    small_too: GpuPart


def small_part(multiprocessors: int, share: float) -> int:
    """Multiprocessors of the small part: at most ``share`` of all, and as many as a part can have."""
    return max(FEWEST, int(multiprocessors * share) // FEWEST * FEWEST)


def divide(device: torch.device, share: float) -> GpuParts:
    """
    Args:
        share: of the multiprocessors that the small part has at most.

    Raises:
        GpuPartsError: the GPU, its driver or the installed packages can't do it.
    """
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise GpuPartsError(f"the package cuda-bindings is missing ({error})") from error
    properties = torch.cuda.get_device_properties(device)
    if properties.major < 9:
        raise GpuPartsError(f"{properties.name} has compute capability below 9.0")
    torch.cuda.synchronize(device)  # the driver's context has to be there
    count = small_part(properties.multi_processor_count, share)
    try:
        return _divide(driver, device, count)
    except (
        AttributeError,
        RuntimeError,
    ) as error:  # a function that one of the two lacks
        raise GpuPartsError(f"the driver or the package cuda-bindings is too old ({error})") from error


def _divide(driver: Any, device: torch.device, count: int) -> GpuParts:
    (ordinal,) = _checked(driver.cuDeviceGet(device.index or 0))
    kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    (whole,) = _checked(driver.cuDeviceGetDevResource(ordinal, kind))
    groups, _, rest = _checked(driver.cuDevSmResourceSplitByCount(1, whole, 0, count))
    small, small_too = _part(driver, ordinal, device, groups[0], streams=2)
    [large] = _part(driver, ordinal, device, rest, streams=1)
    return GpuParts(small, large, small_too)


def _part(driver: Any, ordinal: Any, device: torch.device, resource: Any, streams: int) -> list[GpuPart]:
    """A part, once for each of its streams."""
    (description,) = _checked(driver.cuDevResourceGenerateDesc([resource], 1))
    flags = driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
    (context,) = _checked(driver.cuGreenCtxCreate(description, ordinal, flags))
    apart = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
    made = [_checked(driver.cuGreenCtxStreamCreate(context, apart, 0)) for _ in range(streams)]
    return [
        GpuPart(torch.cuda.ExternalStream(int(stream), device), resource.sm.smCount) for (stream,) in made
    ]


def _checked(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a call of the driver gives after its status."""
    status, *results = answer
    if int(status):
        raise GpuPartsError(f"the driver refuses to divide the GPU: {status.name}")
    return tuple(results)
