"""How a kernel divides its work, by how much of it there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

T = TypeVar("T")
N = TypeVar("N", int, float)


@dataclass(frozen=True)
class Tile:
    """Sizes that one program of a kernel computes, and its resources.

    Attributes:
        rows, columns: of the output; in attention, columns are the keys at a time.
        depth: of the inner dimension at a time; 0 takes it whole, and loads it before the kernel's turn.
        warps: that share the work.
        stages: loads in flight, where the kernel loops.
        repeat: tiles side by side that one program computes, for what it does once a row.
        registers: that a thread may have, so that more programs fit on a multiprocessor; None: as many as the
            compiler likes.
        ahead: a chained kernel that loops has its weights fetched into the L2 cache before its turn.
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
    """
    Attributes:
        early: every kernel lets the next one start as soon as it may read, not only before it stores.
        pages_per_split: attention over more pages than these is split, up to ``max_splits`` parts.
    """

    pages_per_split: int = 4
    max_splits: int = 1
    early: bool = False

    def splits(self, pages: int) -> int:
        """Number of parts that attention over ``pages`` pages is divided into."""
        return max(1, min(self.max_splits, -(-pages // self.pages_per_split)))


@dataclass(frozen=True, kw_only=True)
class Tiles(AttentionParts):
    """The tiles of all kernels of CosyVoice2's estimator.

    Attributes:
        joint: of queries, keys, values and attention in one kernel, for calls of one block; None: in two.
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
        """With lean attention, if its programs take turns on the multiprocessors and lean ones fewer."""
        rounds = -(-programs // (JOINT_RESIDENT * multiprocessors))
        lean_rounds = -(-programs // (LEAN_RESIDENT * multiprocessors))
        if self.joint is None or lean_rounds >= rounds:
            return self
        return replace(self, joint=LEAN)


JOINT = Tile(64, 128, stages=2)
JOINT_RESIDENT = 2
"""Programs of it on a multiprocessor: it has as many registers as a thread can have."""
LEAN = replace(JOINT, registers=168)
LEAN_RESIDENT = 3
"""On a multiprocessor, each program a tenth slower by itself. Attention of 16 utterances is 256 programs,
which were two rounds on 100 multiprocessors: ten steps after 500 frames take 35 ms there instead of 45."""

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
BY_FRAMES = {1.9: SMALL, 3.5: ALONE, 7.5: MEDIUM, 20.0: UNSPLIT}
"""Tiles by the most frames of all rows of a call for each multiprocessor; more take :data:`LARGE`. Found on
an H200 by ``benchmarks/fused_kernels.py --tune`` for 1 to 32 utterances on the whole of it, and for 1 to 16
on parts of 8 to 104 multiprocessors, where as many frames a multiprocessor want the same tiles."""


def tiles_for(frames: int, multiprocessors: int) -> Tiles:
    """Those for a call with this number of frames, both guidance rows counted."""
    return up_to(BY_FRAMES, frames / multiprocessors, LARGE)


def up_to(limits: Mapping[N, T], amount: float, more: T) -> T:
    """The entry of the least limit that an amount does not exceed; ``more`` beyond all of them."""
    return next((limits[limit] for limit in sorted(limits) if amount <= limit), more)


FEW_VALUES = 1_200_000
"""Most values of a small output of the vocoder's convolutions, as those of one to four utterances have."""
FEW, NARROW, WIDE = Tile(64, 64, 64, stages=4), Tile(128, 64, 64, stages=4), Tile(64, 128, 64, stages=4)
"""For few values, for less than 128 columns and for more; the fastest of nine on an H200 for 1 to 32 windows
of 86 mel frames, or within a tenth of it."""


RELATIVE = Tile(0, 0, stages=2)
"""Tile of the encoder's attention: a block of queries and a page of keys at a time. Eight warps or three
stages take as long, one stage a tenth longer."""
JOIN = Tile(16, 0)
"""Of what joins parts of it."""
RELATIVE_PROGRAMS, RELATIVE_SPLITS = 256, 8
"""Programs that keys are divided into parts for, and the most parts. With 50 blocks before a new one the
encoder takes 1.9 / 1.3 / 1.0 / 0.8 ms in 1 / 2 / 4 / 8 parts for one utterance, 2.1 / 1.6 for 16."""


def relative_splits(programs: int) -> int:
    """Parts of the keys, of which so many programs take one each."""
    return max(1, min(RELATIVE_SPLITS, RELATIVE_PROGRAMS // programs))


def row_conv_tile(rows: int, columns: int) -> Tile:
    """For an output of as many steps of all rows and channels."""
    if rows * columns <= FEW_VALUES:
        return FEW
    return WIDE if columns % WIDE.columns == 0 else NARROW
