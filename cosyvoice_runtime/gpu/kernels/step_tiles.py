"""Division of the work of a step's kernels, by the number of sequences."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from cosyvoice_runtime.gpu.kernels.arithmetic import EARLY, FIRST, LATE
from cosyvoice_runtime.gpu.kernels.tiles import ByAmount


@dataclass(frozen=True)
class StepTile:
    """Sizes that one program of a kernel computes, and its resources.

    Attributes:
        rows: of the weight; of each of two weights where a kernel takes pairs. At least 16 where they are
            streamed.
        columns: sequences, a power of two. Fewer than 16 are multiplied in float32, one after another; 16 and
            more on tensor cores.
        piece: of a row's width at a time.
        groups: that a piece is divided into, each of them multiplied by itself, so that warps share the work.
        warps: that share the work; at most as many as groups where there are tensor cores.
        ahead: pieces of the weight that are loaded before the kernel may read its inputs.
        stages: pieces on their way where rows are streamed; 0: rows are held.
    """

    rows: int
    columns: int
    piece: int = 1024
    groups: int = 4
    warps: int = 4
    ahead: int = 8
    stages: int = 0

    def dividing(self, size: int) -> StepTile:
        """This tile with as many rows as divide an output of this size."""
        return replace(self, rows=math.gcd(self.rows, size))


@dataclass(frozen=True)
class StepTiles:
    """The tiles of all kernels of a step.

    Attributes:
        keys: positions that attention takes at a time.
        split_programs: sequences times splits of their keys, at most; up to ``max_splits``. More splits
            are read faster, and take longer to join.
        trigger: when every kernel lets the next one start, of ``arithmetic``.
    """

    qkv: StepTile
    out: StepTile
    gated: StepTile
    down: StepTile
    head: StepTile
    keys: int = 32
    attention_warps: int = 4
    split_programs: int = 32
    max_splits: int = 16
    trigger: int = FIRST

    def fitted(self, hidden: int, inner: int) -> StepTiles:
        """These tiles with as many rows as divide the sizes of the network, at least 16 channels."""
        return replace(
            self,
            out=self.out.dividing(hidden),
            gated=self.gated.dividing(inner),
            down=self.down.dividing(hidden),
        )

    def splits(self, batch: int, span: int) -> int:
        """Number of splits, a power of two, of the ``span`` keys of each sequence."""
        most = min(self.max_splits, self.split_programs // batch, span // self.keys)
        return 1 << (max(most, 1).bit_length() - 1)


ONE = StepTiles(
    qkv=StepTile(4, 1),
    out=StepTile(8, 1, groups=16, warps=8),
    gated=StepTile(4, 1, 512, 2, 2),
    down=StepTile(2, 1, 512, 2, 2),
    head=StepTile(8, 1, 512, 2, 2),
)
TWO = StepTiles(
    qkv=StepTile(4, 2),
    out=StepTile(8, 2, groups=16, warps=8),
    gated=StepTile(4, 2),
    down=StepTile(2, 2, 512, 2, 2),
    head=StepTile(8, 2),
)
FEW = StepTiles(
    qkv=StepTile(8, 16, 512),
    out=StepTile(16, 16, groups=16),
    gated=StepTile(16, 16),
    down=StepTile(8, 16, 512, 8, 8),
    head=StepTile(32, 16, 512),
    keys=128,
    max_splits=2,
)
UP_TO_32 = StepTiles(
    qkv=StepTile(16, 32, 128, stages=4),
    out=StepTile(32, 32, 128, stages=5),
    gated=StepTile(64, 32, 128, stages=3),
    down=StepTile(64, 32, 256, stages=3),
    head=StepTile(64, 32, 128, stages=3),
    keys=128,
    attention_warps=8,
    max_splits=1,
    trigger=EARLY,
)
MANY = StepTiles(
    qkv=StepTile(16, 64, 64, stages=4),
    out=StepTile(32, 64, 128, stages=3),
    gated=StepTile(64, 64, 128, stages=2),
    down=StepTile(64, 64, 64, stages=5),
    head=StepTile(64, 64, 64, stages=4),
    keys=128,
    max_splits=1,
    trigger=EARLY,
)
STEP_TILES = ByAmount({1: ONE, 2: TWO, 16: FEW, 32: UP_TO_32}, MANY)
"""Tiles by the sequences of a step. Found on an H200 as ``benchmarks/tune_kernels.py`` does for 1, 16, 32 and
64 sequences of 500 positions; for 2, the best of nine on an H100, where 3 and 4 take as long with any."""

PART_FEW = StepTiles(
    qkv=StepTile(16, 16, 128, stages=3),
    out=StepTile(64, 16, 64, stages=5),
    gated=StepTile(64, 16, 64, stages=5),
    down=StepTile(64, 16, 128, stages=5),
    head=StepTile(32, 16, 128, stages=2),
    keys=128,
    max_splits=1,
    trigger=LATE,
)
PART_UP_TO_32 = StepTiles(
    qkv=StepTile(16, 32, 128, stages=3),
    out=StepTile(32, 32, 128, stages=5),
    gated=StepTile(128, 32, 64, warps=8, stages=3),
    down=StepTile(64, 32, 128, stages=5),
    head=StepTile(64, 32, 64, stages=4),
    keys=128,
    max_splits=1,
    trigger=LATE,
)
PART_MANY = StepTiles(
    qkv=StepTile(16, 64, 128, stages=3),
    out=StepTile(32, 64, 64, stages=5),
    gated=StepTile(64, 64, 64, stages=5),
    down=StepTile(64, 64, 64, stages=5),
    head=StepTile(64, 64, 64, stages=4),
    keys=128,
    max_splits=1,
    trigger=LATE,
)
PART_STEP_TILES = ByAmount({1: ONE, 16: PART_FEW, 32: PART_UP_TO_32}, PART_MANY)
"""Tiles for a partition of the GPU: found on 32 of 132 multiprocessors. On 48 of them 2 take as long in any
way."""
