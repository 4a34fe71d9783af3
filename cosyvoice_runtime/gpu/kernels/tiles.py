"""The tiles into which kernels divide their work, chosen by its amount."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class ByAmount(Generic[T]):
    """Tiles by the amount of work.

    Attributes:
        up_to: tiles by the largest amount that they are for.
        more: tiles for larger amounts.
    """

    up_to: Mapping[float, T]
    more: T

    def of(self, amount: float) -> T:
        """The tiles of the smallest limit that is not exceeded."""
        return next((self.up_to[limit] for limit in sorted(self.up_to) if amount <= limit), self.more)

    def each(self, changed: Callable[[T], T]) -> ByAmount[T]:
        """Change all tiles, and keep their limits."""
        return ByAmount({limit: changed(tiles) for limit, tiles in self.up_to.items()}, changed(self.more))


@dataclass(frozen=True)
class Tile:
    """The sizes and resources of one program of a kernel.

    Attributes:
        rows, columns: size of the output; in attention, columns are keys.
        depth: part of the inner dimension per load; 0 loads all of it before the kernel's wait.
        warps: number of warps.
        stages: number of loads in flight, where the kernel loops.
        repeat: adjacent tiles that one program computes, which shares the work of a row.
        registers: limit of registers of a thread, so that more programs fit on a multiprocessor; None is no
            limit.
        ahead: whether a chained kernel that loops prefetches its weights into the L2 cache.
    """

    rows: int
    columns: int
    depth: int = 0
    warps: int = 4
    stages: int = 3
    repeat: int = 1
    registers: int | None = None
    ahead: bool = False


@dataclass(frozen=True, kw_only=True)
class AttentionParts:
    """The division of attention among programs.

    Attributes:
        early: whether every kernel lets the next one start as soon as it may read.
        pages_per_split: attention over more pages than these is split, up to ``max_splits`` parts.
    """

    pages_per_split: int = 4
    max_splits: int = 1
    early: bool = False

    def splits(self, pages: int) -> int:
        """The number of splits of attention over ``pages`` pages."""
        return max(1, min(self.max_splits, -(-pages // self.pages_per_split)))


@dataclass(frozen=True, kw_only=True)
class Tiles(AttentionParts):
    """The tiles of all kernels of CosyVoice2's estimator.

    Attributes:
        joint: tile of the joint kernel for queries, keys, values and attention, for calls of one block; None
            uses two kernels.
        apart: a residual block activates its hidden state once, in a kernel of its own, not in every program
            of the second convolution.
    """

    qkv: Tile
    attention: Tile
    out: Tile
    widen: Tile
    narrow: Tile
    conv: Tile
    finish: Tile = field(default=Tile(16, 0))
    joint: Tile | None = None
    euler: Tile = field(default=Tile(16, 0))
    apart: bool = False

    def crowded(self, programs: int, multiprocessors: int) -> Tiles:
        """The tiles with lean attention, if that needs fewer waves of programs on the multiprocessors."""
        rounds = -(-programs // (JOINT_RESIDENT * multiprocessors))
        lean_rounds = -(-programs // (LEAN_RESIDENT * multiprocessors))
        if self.joint is None or lean_rounds >= rounds:
            return self
        return replace(self, joint=LEAN)


JOINT = Tile(64, 128, stages=2)
JOINT_RESIDENT = 2
"""The joint kernel's programs on a multiprocessor: each thread has the most registers."""
LEAN = replace(JOINT, registers=168)
LEAN_RESIDENT = 3
"""The programs of lean attention on a multiprocessor, each a tenth slower. Attention of 16 utterances has 256
programs, two waves on 100 multiprocessors: ten steps after 500 frames take 35 ms instead of 45."""

SMALL = Tiles(
    qkv=Tile(16, 64),
    attention=Tile(64, 64),
    out=Tile(16, 32),
    widen=Tile(16, 64),
    narrow=Tile(16, 32, 256),
    conv=Tile(16, 64),
    finish=Tile(4, 0, warps=2),
    early=True,
    apart=True,
    pages_per_split=6,
    max_splits=4,
)
MEDIUM = Tiles(
    qkv=Tile(64, 64, warps=8, repeat=4),
    attention=Tile(64, 64),
    out=Tile(64, 32, 128, stages=4),
    widen=Tile(64, 128, warps=8),
    narrow=Tile(64, 32, 128, stages=4),
    conv=Tile(32, 128, warps=8),
    finish=Tile(4, 0),
    joint=JOINT,
    apart=True,
    pages_per_split=8,
    max_splits=2,
)
UNSPLIT = replace(MEDIUM, max_splits=1, early=True)
LARGE = Tiles(
    qkv=Tile(128, 64, warps=8, repeat=8),
    attention=Tile(64, 64),
    out=Tile(64, 32, 64, stages=4),
    widen=Tile(128, 64, warps=8, repeat=4),
    narrow=Tile(64, 128, 128, stages=4),
    conv=Tile(64, 128, warps=8),
    finish=Tile(4, 0),
    joint=JOINT,
    early=True,
    apart=True,
    pages_per_split=32,
)
ALONE = replace(MEDIUM, early=True)
UNET_TILES = ByAmount({1.9: SMALL, 3.5: ALONE, 7.5: MEDIUM, 20.0: UNSPLIT}, LARGE)
"""Tiles by the frames of both guidance rows of a call for each multiprocessor. They were found on an H200 by
trying each field in turn for 1 to 32 utterances on all multiprocessors, and for 1 to 16 on 8 to
104 of them, where the same number of frames per multiprocessor has the same best tiles."""


FEW_VALUES = 1_200_000
"""The most values of a small convolution output in the vocoder, as one to four utterances have."""
FEW, NARROW, WIDE = Tile(64, 64, 64, stages=4), Tile(128, 64, 64, stages=4), Tile(64, 128, 64, stages=4)
"""The tiles for few values, for fewer than 128 columns, and for more. They are within a tenth of the fastest
of nine on an H200, for 1 to 32 windows of 86 mel frames."""


RELATIVE = Tile(0, 0, stages=2)
"""The tile of the encoder's attention: a block of queries and a page of keys. Eight warps or three stages
take as long, one stage a tenth longer."""
JOIN = Tile(16, 0)
"""The tile of the kernel that combines the splits of this attention."""
RELATIVE_PROGRAMS, RELATIVE_SPLITS = 256, 8
"""The programs up to which keys are split, and the most splits. With 50 previous blocks the encoder takes 1.9
/ 1.3 / 1.0 / 0.8 ms in 1 / 2 / 4 / 8 splits for one utterance, 2.1 / 1.6 for 16."""


def relative_splits(programs: int) -> int:
    """The number of splits of the keys for this number of programs."""
    return max(1, min(RELATIVE_SPLITS, RELATIVE_PROGRAMS // programs))


def row_conv_tile(rows: int, columns: int) -> Tile:
    """The tile for an output with this number of steps and channels."""
    if rows * columns <= FEW_VALUES:
        return FEW
    return WIDE if columns % WIDE.columns == 0 else NARROW
