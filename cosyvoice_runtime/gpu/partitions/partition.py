"""A GPU's multiprocessors in parts: what is launched into a part's stream runs there and nowhere else.

Kinds of work side by side on a whole GPU wait for each other's kernels; in parts none notices the others. The
parts are green contexts of the CUDA driver, from 12.5 on:
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
        second: another stream of the part, for what may go on beside the first one's work.
    """

    stream: torch.cuda.Stream
    multiprocessors: int
    second: torch.cuda.Stream


@dataclass(frozen=True, eq=False)
class GpuParts:
    """All parts; together they are the GPU.

    Attributes:
        steps: for steps of the speech LM.
        turns: for turns of token2wav, each part in a lane of its own.
        first: that for steps once more for each lane of hurried chunks, which wait for no steps, but share
            multiprocessors with them.
        of_few: the same GPU divided otherwise, for when few utterances are in progress.
    """

    steps: GpuPart
    turns: tuple[GpuPart, ...]
    first: tuple[GpuPart, ...]
    of_few: GpuParts | None = None

    @property
    def all_for_steps(self) -> tuple[GpuPart, ...]:
        """Every part that steps may have, that of few utterances last."""
        return (self.steps, *(() if self.of_few is None else self.of_few.all_for_steps))


def steps_part(multiprocessors: int, share: float) -> int:
    """Multiprocessors of the part for steps beside one for turns: at most ``share`` of all."""
    return _rounded(multiprocessors * share)


def turns_part(multiprocessors: int, share: float, lanes: int) -> int:
    """Multiprocessors of each of several parts for turns, which leave at least ``share`` of all for steps."""
    return _rounded(multiprocessors * (1 - share) / lanes)


def divide(device: torch.device, share: float, lanes: int = 1, first_lanes: int = 1) -> GpuParts:
    """
    Args:
        share: of the multiprocessors, for steps: at most beside one part for turns, at least beside several.
        lanes: parts for turns.
        first_lanes: of hurried chunks, on the part for steps.

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
    count = properties.multi_processor_count
    try:
        if lanes == 1:
            [steps], turns = _divide(driver, device, 1, steps_part(count, share))
            parts = [turns]
        else:
            parts, steps = _divide(driver, device, lanes, turns_part(count, share, lanes))
            if steps.sm.smCount < max(FEWEST, count * share):
                raise GpuPartsError(
                    f"{lanes} parts for turns leave {steps.sm.smCount} of {count} multiprocessors for steps"
                )
        of_steps, *of_first = _part(driver, device, steps, users=1 + first_lanes)
        of_turns = [part for resource in parts for part in _part(driver, device, resource, users=1)]
    except (
        AttributeError,
        RuntimeError,
    ) as error:  # a function that one of the two lacks
        raise GpuPartsError(f"the driver or the package cuda-bindings is too old ({error})") from error
    return GpuParts(of_steps, tuple(of_turns), tuple(of_first))


def _rounded(multiprocessors: float) -> int:
    return max(FEWEST, int(multiprocessors) // FEWEST * FEWEST)


def _divide(driver: Any, device: torch.device, parts: int, each: int) -> tuple[list[Any], Any]:
    """Equal parts and what is left of the GPU."""
    (ordinal,) = _checked(driver.cuDeviceGet(device.index or 0))
    kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    (whole,) = _checked(driver.cuDeviceGetDevResource(ordinal, kind))
    equal, count, rest = _checked(driver.cuDevSmResourceSplitByCount(parts, whole, 0, each))
    if count < parts or not rest.sm.smCount:
        raise GpuPartsError(
            f"of {whole.sm.smCount} multiprocessors the driver gives {count} parts of {each}, not {parts} "
            "and a rest"
        )
    return list(equal)[:parts], rest


def _part(driver: Any, device: torch.device, resource: Any, users: int) -> list[GpuPart]:
    """A part, once for each of its users, who have streams of their own."""
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
    """Values that a call of the driver gives after its status."""
    status, *results = answer
    if int(status):
        raise GpuPartsError(f"the driver refuses to divide the GPU: {status.name}")
    return tuple(results)
