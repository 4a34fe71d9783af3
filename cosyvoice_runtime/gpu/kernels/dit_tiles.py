"""The tiles of CosyVoice3's estimator, as they are fastest on an H200."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cosyvoice_runtime.gpu.kernels.tiles import AttentionParts, ByAmount, Tile


@dataclass(frozen=True, kw_only=True)
class DiTTiles(AttentionParts):
    """The tiles of all kernels.

    Attributes:
        norm: of rows before each layer and before the last one.
        enter, conv: of the input's layer, and of the convolutions that give order.
        out, narrow: the layers on the residual.
        leave: the last layer and the Euler step.
    """

    norm: Tile
    enter: Tile
    conv: Tile
    qkv: Tile
    attention: Tile = field(default=Tile(64, 64))
    out: Tile
    widen: Tile
    narrow: Tile
    leave: Tile


FEW = DiTTiles(
    norm=Tile(1, 0, warps=4),
    enter=Tile(32, 32, 64),
    conv=Tile(16, 0, stages=4),
    qkv=Tile(64, 64, 128, stages=3, ahead=True),
    out=Tile(64, 32, 128, stages=3, ahead=True),
    widen=Tile(64, 32, 128, stages=4, ahead=True),
    narrow=Tile(64, 64, 64, stages=4, ahead=True),
    leave=Tile(64, 32, 128),
)
"""Found for one utterance after 200 frames on an H200, whose two steps take 1.6 ms instead of 2.3."""
SOME = DiTTiles(
    norm=Tile(2, 0, warps=4),
    enter=Tile(64, 64, 64),
    conv=Tile(64, 0, stages=4),
    qkv=Tile(128, 64, 64, stages=4),
    out=Tile(64, 64, 64, stages=4),
    widen=Tile(64, 128, 64, stages=4),
    narrow=Tile(64, 64, 128, stages=3),
    leave=Tile(16, 32, 128),
    pages_per_split=8,
    max_splits=2,
    early=True,
)
UNSPLIT = replace(SOME, max_splits=1)
"""Heads and rows are enough programs from seven utterances on; an empty split costs as much as another."""
MANY = DiTTiles(
    norm=Tile(4, 0, warps=4),
    enter=Tile(128, 128, 64, warps=8),
    conv=Tile(128, 0, warps=8),
    qkv=Tile(128, 128, 64, warps=8, stages=4),
    out=Tile(128, 64, 64, stages=4),
    widen=Tile(128, 128, 64, warps=8, stages=4),
    narrow=Tile(128, 64, 64, stages=4),
    leave=Tile(64, 32, 128),
    early=True,
)
DIT_TILES = ByAmount({1.9: FEW, 4.6: SOME, 9.1: UNSPLIT}, MANY)
"""Tiles by the frames of all rows of a call for each multiprocessor. All but :data:`FEW` are not tuned: sizes
as CosyVoice2's kernels like them, of which none that was tried for eight utterances is faster by more than a
fortieth. ``benchmarks/tune_kernels.py --family cosyvoice3`` looks for better ones."""
