"""One row for each kind of GPU: the tiles that fit its shared memory, and whether its kernels may overlap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from pydantic import TypeAdapter, ValidationError

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.gpu.kernels.dit_tiles import DIT_TILES, DiTTiles
from cosyvoice_runtime.gpu.kernels.step_tiles import PART_STEP_TILES, STEP_TILES, StepTiles
from cosyvoice_runtime.gpu.kernels.tiles import MEDIUM, UNET_TILES, ByAmount, Tiles
from cosyvoice_runtime.gpu.nvidia import Version, gpu_limits

DEPENDENT_FROM = (9, 0)
"""The compute capability from which a kernel may start while the one before ends (CUDA C++ Programming Guide,
"Programmatic Dependent Launch and Synchronization")."""
KIB = 1024
TENSOR_CORES_FROM = 16
"""The fewest sequences of a program that tensor cores multiply."""


@dataclass(frozen=True, kw_only=True)
class GpuRow:
    """The tiles and limits of a kind of GPU.

    Attributes:
        name: of GPUs of this kind.
        capability: compute capability from which they are.
        shared_kib: most shared memory of a program (CUDA C++ Programming Guide, "Technical Specifications per
            Compute Capability").
        unet, dit: tiles of the flow's estimators by the frames of a call for each multiprocessor.
        steps, part_steps: tiles of the speech LM's steps by their sequences, on the whole GPU and on a part.
        chained: whether kernels start while the one before ends.
    """

    name: str
    capability: Version
    shared_kib: int
    unet: ByAmount[Tiles] = UNET_TILES
    dit: ByAmount[DiTTiles] = DIT_TILES
    steps: ByAmount[StepTiles] = STEP_TILES
    part_steps: ByAmount[StepTiles] = PART_STEP_TILES
    chained: bool = False

    def step_tiles(self, batch: int, on_part: bool = False) -> StepTiles:
        """Tiles for a step of this many sequences, on the whole GPU or on a partition."""
        return (self.part_steps if on_part else self.steps).of(batch)


SHALLOW = 128
"""Channels that a program of the U-Net's convolutions takes at a time where 256 don't fit."""


def _shallow(tiles: Tiles) -> Tiles:
    return replace(tiles, conv=replace(tiles.conv, depth=SHALLOW))


def _lean_unet(tiles: Tiles) -> Tiles:
    """The tiles of the U-Net, of which those for many frames are too large for 99 KiB."""
    few_loads = replace(MEDIUM.qkv, stages=2)
    lean = replace(_shallow(tiles), qkv=few_loads if tiles.qkv.rows >= few_loads.rows else tiles.qkv)
    if tiles is not UNET_TILES.more:
        return lean
    return replace(lean, widen=MEDIUM.widen, narrow=replace(tiles.narrow, depth=64))


def _lean_dit(tiles: DiTTiles) -> DiTTiles:
    return replace(tiles, conv=replace(tiles.conv, stages=2))


def _lean_steps(tiles: StepTiles) -> StepTiles:
    """The tiles of steps, of which programs for several sequences join no splits and take less at a time."""
    if tiles.down.columns < TENSOR_CORES_FROM:
        return tiles
    down = tiles.down
    lean = (
        replace(down, piece=min(down.piece, 128))
        if down.stages
        else replace(down, piece=256, groups=4, warps=4)
    )
    return replace(tiles, down=lean, max_splits=1)


HOPPER = GpuRow(name="H100, H200, H20, GH200", capability=(9, 0), shared_kib=227, chained=True)
AMPERE = replace(
    HOPPER,
    name="A100, A30",
    capability=(8, 0),
    shared_kib=163,
    unet=UNET_TILES.each(_shallow),
    chained=False,
)
ADA = replace(
    AMPERE,
    name="RTX 30, A10, A40, RTX 40, L4, L20, L40S",
    capability=(8, 6),
    shared_kib=99,
    unet=UNET_TILES.each(_lean_unet),
    dit=DIT_TILES.each(_lean_dit),
    steps=STEP_TILES.each(_lean_steps),
    part_steps=PART_STEP_TILES.each(_lean_steps),
)
BLACKWELL = replace(HOPPER, name="B200, GB200, B300", capability=(10, 0))
RTX_BLACKWELL = replace(ADA, name="RTX 50, RTX PRO Blackwell, DGX Spark", capability=(12, 0), chained=True)
ROWS = (AMPERE, ADA, HOPPER, BLACKWELL, RTX_BLACKWELL)


def row_of(capability: Version, shared_bytes: int) -> GpuRow:
    """The row of a GPU: the newest one that is not newer and needs no more shared memory than there is.

    Args:
        capability: at least :data:`~cosyvoice_runtime.gpu.nvidia.KERNELS_FROM`.
        shared_bytes: most shared memory of a program.

    Raises:
        ValueError: no row fits.
    """
    fitting = [row for row in ROWS if row.capability <= capability and row.shared_kib * KIB <= shared_bytes]
    if not fitting:
        raise ValueError(f"no kernels fit compute capability {capability} with {shared_bytes} bytes shared")
    return replace(max(fitting, key=lambda row: row.capability), chained=capability >= DEPENDENT_FROM)


def row_named(capability: str) -> GpuRow:
    """The row that begins with a compute capability such as ``8.6``; a ValueError names those there are."""
    found = {"{}.{}".format(*row.capability): row for row in ROWS}
    if capability not in found:
        raise ValueError(f"{capability} is none of {', '.join(found)}")
    return found[capability]


def read_row(path: Path) -> GpuRow:
    """The row in a file that :func:`write_row` wrote.

    Raises:
        InvalidInput: the file can't be read, or is none; the message names the entry.
    """
    try:
        return _AS_JSON.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        limit = f"a file as scripts/compile_kernels.py --write-row writes ({str(error)[:300]})"
        raise InvalidInput("token2wav.kernels_file", str(path), limit) from error


def write_row(path: Path, row: GpuRow) -> None:
    """Write a row as JSON."""
    path.write_bytes(_AS_JSON.dump_json(row, indent=1) + b"\n")


_AS_JSON = TypeAdapter(GpuRow)
_used: list[GpuRow] = []
"""The row that takes the place of the GPU's own, if there is one."""


def use_row(row: GpuRow) -> None:
    """Let kernels on all GPUs of this process have the tiles of this row from now on."""
    _used[:] = [row]


INTERPRETED = replace(HOPPER, name="the Triton language's interpreter", chained=False)


def row_on(device: torch.device) -> GpuRow:
    """The row of a GPU that is here, or the one in its place; on a CPU the interpreter's."""
    if device.type != "cuda":
        return INTERPRETED
    if _used:
        return _used[0]
    limits = gpu_limits(device.index or 0)
    return row_of(limits.capability, limits.shared_bytes)
