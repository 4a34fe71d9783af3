"""How a kernel divides its work, by how much of it there is."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Tile:
    """What one program of a kernel computes, and with what.

    Attributes:
        rows, columns: of the output.
        depth: of the inner dimension at a time; 0 takes it whole, and loads it before the kernel's turn.
        warps: that share the work.
        stages: loads in flight, where the kernel loops.
    """

    rows: int
    columns: int
    depth: int = 0
    warps: int = 4
    stages: int = 3


@dataclass(frozen=True)
class Tiles:
    """The tiles of all kernels of the flow's estimator.

    Attributes:
        pages_per_split: attention over more pages than these is split, up to ``max_splits`` parts.
    """

    qkv: Tile
    attention: Tile
    out: Tile
    widen: Tile
    narrow: Tile
    conv: Tile
    euler: Tile = field(default=Tile(16, 0))
    pages_per_split: int = 4
    max_splits: int = 1

    def splits(self, pages: int) -> int:
        """Into how many parts attention over so many pages is divided."""
        return max(1, min(self.max_splits, -(-pages // self.pages_per_split)))


SMALL = Tiles(
    qkv=Tile(16, 128),
    attention=Tile(64, 64),
    out=Tile(16, 16),
    widen=Tile(16, 64),
    narrow=Tile(16, 16),
    conv=Tile(16, 256, 64, warps=8),
    pages_per_split=3,
    max_splits=8,
)
MEDIUM = Tiles(
    qkv=Tile(64, 128),
    attention=Tile(64, 64),
    out=Tile(32, 32),
    widen=Tile(32, 128),
    narrow=Tile(32, 64, 128),
    conv=Tile(16, 256, 64, warps=8),
    pages_per_split=4,
    max_splits=4,
)
LARGE = Tiles(
    qkv=Tile(128, 128, warps=8),
    attention=Tile(64, 64),
    out=Tile(128, 64, 64),
    widen=Tile(128, 128, warps=8),
    narrow=Tile(128, 64, 64),
    conv=Tile(32, 256, 64, warps=8),
    pages_per_split=8,
    max_splits=4,
)
BY_FRAMES = {150: SMALL, 500: MEDIUM}
"""For at most so many frames of all rows of a call; more take :data:`LARGE`."""


def tiles_for(frames: int) -> Tiles:
    """Those for a call of so many frames, both guidance rows counted."""
    limits = sorted(BY_FRAMES)
    place = bisect_left(limits, frames)
    return BY_FRAMES[limits[place]] if place < len(limits) else LARGE
