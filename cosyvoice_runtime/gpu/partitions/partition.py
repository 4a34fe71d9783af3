"""Partitions of a GPU's multiprocessors: work launched on a partition's stream runs only there.

Kinds of concurrent work on a whole GPU wait for each other's kernels; in partitions none notices the others.
Partitions are green contexts of the CUDA driver, from 12.5 on:
https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__GREEN__CONTEXTS.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from cosyvoice_runtime.errors import CosyVoiceError

SIZES = {7: (2, 2), 8: (4, 2)}
"""The smallest partition of a GPU, and the multiple of its size, by the major number of the compute
capability; newer ones have 8 and 8 (CUDA Driver API, "Green Contexts")."""


class GpuPartsError(CosyVoiceError):
    """The GPU can't be divided; the message says why."""


@dataclass(frozen=True, eq=False)
class GpuPart:
    """One partition of a GPU.

    Attributes:
        stream: stream whose work runs on the partition, including graphs that were captured on it.
        multiprocessors: number of its multiprocessors.
        second: another stream of the partition, for concurrent work.
    """

    stream: torch.cuda.Stream
    multiprocessors: int
    second: torch.cuda.Stream


@dataclass(frozen=True, eq=False)
class GpuParts:
    """All partitions, which together are the GPU.

    Attributes:
        steps: the partition for steps of the speech LM.
        turns: the partition for batches of token2wav.
        first: the steps' partition again for each worker of urgent chunks, which share its multiprocessors.
        of_few: the division for few utterances in progress.
    """

    steps: GpuPart
    turns: GpuPart
    first: tuple[GpuPart, ...]
    of_few: GpuParts | None = None

    @property
    def all_for_steps(self) -> tuple[GpuPart, ...]:
        """The partitions that steps may have; that for few utterances is last."""
        return (self.steps, *(() if self.of_few is None else self.of_few.all_for_steps))


def steps_part(multiprocessors: int, share: float, major: int) -> int:
    """The multiprocessors for steps: at most ``share`` of all, and a number that a GPU can give.

    Args:
        major: of its compute capability.
    """
    fewest, multiple = SIZES.get(major, (8, 8))
    return max(fewest, int(multiprocessors * share) // multiple * multiple)


def divide(device: torch.device, share: float, first_lanes: int = 1) -> GpuParts:
    """Divide a GPU.

    Args:
        share: the largest share of multiprocessors for steps.
        first_lanes: workers of urgent chunks, on the steps' partition.

    Raises:
        GpuPartsError: the GPU, its driver or the installed packages can't do it.
    """
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise GpuPartsError(f"the package cuda-bindings is missing ({error})") from error
    properties = torch.cuda.get_device_properties(device)
    torch.cuda.synchronize(device)  # The driver's context must exist.
    count = properties.multi_processor_count
    try:
        steps, turns = _divide(driver, device, steps_part(count, share, properties.major))
        of_steps, *of_first = _part(driver, device, steps, users=1 + first_lanes)
        [of_turns] = _part(driver, device, turns, users=1)
    except (
        AttributeError,
        RuntimeError,
    ) as error:  # The driver or the package may lack a function.
        raise GpuPartsError(f"the driver or the package cuda-bindings is too old ({error})") from error
    return GpuParts(of_steps, of_turns, tuple(of_first))


def _divide(driver: Any, device: torch.device, multiprocessors: int) -> tuple[Any, Any]:
    """A partition of this size, and the remainder of the GPU."""
    (ordinal,) = _checked(driver.cuDeviceGet(device.index or 0))
    kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    (whole,) = _checked(driver.cuDeviceGetDevResource(ordinal, kind))
    parts, count, rest = _checked(driver.cuDevSmResourceSplitByCount(1, whole, 0, multiprocessors))
    if not (count and rest.sm.smCount):
        raise GpuPartsError(
            f"of {whole.sm.smCount} multiprocessors the driver gives no part of {multiprocessors} and a rest"
        )
    return parts[0], rest


def _part(driver: Any, device: torch.device, resource: Any, users: int) -> list[GpuPart]:
    """A partition, once for each of its users, with separate streams."""
    (ordinal,) = _checked(driver.cuDeviceGet(device.index or 0))
    (description,) = _checked(driver.cuDevResourceGenerateDesc([resource], 1))
    flags = driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
    (context,) = _checked(driver.cuGreenCtxCreate(description, ordinal, flags))
    apart = driver.CUstream_flags.CU_STREAM_NON_BLOCKING

    def stream() -> torch.cuda.Stream:
        (made,) = _checked(driver.cuGreenCtxStreamCreate(context, apart, 0))
        return torch.cuda.ExternalStream(int(made), device)

    return [GpuPart(stream(), resource.sm.smCount, stream()) for _ in range(users)]


def _checked(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of a driver call, whose status is checked."""
    status, *results = answer
    if int(status):
        raise GpuPartsError(f"the driver refuses to divide the GPU: {status.name}")
    return tuple(results)
