"""Tiles that are tried on a GPU, for each field of those of the flow and of the speech LM's steps."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from cosyvoice_runtime.gpu.kernels.arithmetic import EARLY, FIRST, LATE
from cosyvoice_runtime.gpu.kernels.step_tiles import StepTile, StepTiles
from cosyvoice_runtime.gpu.kernels.tiles import JOINT, LEAN, Tile

Candidates = dict[str, Sequence[Any]]
"""Values to try by the name of a field, in the order in which the fields are tuned."""

MOST_SHARED = 192 * 1024
"""Bytes of a program's loads in flight."""
LINEAR_TILES = [
    Tile(16, 64),
    Tile(16, 128),
    Tile(32, 64),
    *(Tile(64, columns, warps=warps) for columns, warps in ((64, 4), (128, 8))),
    *(Tile(64, columns, 0, 8, 3, 256 // columns) for columns in (64, 128)),
    *(Tile(64, columns, 0, 8, 3, 512 // columns) for columns in (64, 128)),
    *(Tile(64, 64, 0, 4, 3, repeat) for repeat in (2, 4, 8)),
    *(Tile(32, 128, 0, 4, 3, repeat) for repeat in (2, 4)),
    *(Tile(128, 64, 0, 8, 3, repeat) for repeat in (4, 8)),
]
RESIDUAL_TILES = [
    *(Tile(16, columns, depth) for columns in (16, 32) for depth in (0, 256)),
    *(Tile(64, columns, depth, stages=4) for columns in (32, 64, 128) for depth in (64, 128)),
]
CONV_TILES = [
    *(Tile(16, columns) for columns in (16, 32, 64)),
    *(Tile(32, columns) for columns in (32, 64)),
    *(Tile(64, columns, warps=8) for columns in (64, 128)),
    Tile(64, 64),
    Tile(32, 128, warps=8),
]
UNET: Candidates = {
    "early": [False, True],
    "apart": [False, True],
    "conv": CONV_TILES,
    "qkv": LINEAR_TILES,
    "widen": LINEAR_TILES,
    "narrow": RESIDUAL_TILES,
    "out": RESIDUAL_TILES,
    "joint": [None, JOINT, LEAN, Tile(64, 64, warps=4), Tile(64, 64, warps=8)],
}


def layer_tiles(frames: int) -> list[Tile]:
    """Time of a linear layer of so many frames; few of them wait for its weights."""
    rows = (16, 32, 64) if frames <= 250 else (64, 128)
    columns = (16, 32, 64) if frames <= 250 else (64, 128)
    return [
        Tile(height, width, depth, warps, stages, ahead=frames <= 250)
        for height, width in itertools.product(rows, columns)
        for depth, stages in ((64, 3), (64, 4), (128, 3))
        for warps in ((4, 8) if height * width >= 64 * 128 else (4,))
        if height * width <= 64 * 128 * warps // 4  # more takes more registers than there are
        and 2 * stages * depth * (height + width) <= MOST_SHARED
    ]


def dit_candidates(frames: int) -> Candidates:
    layers = layer_tiles(frames)
    return {
        "early": [False, True],
        "max_splits": [1, 2, 4, 8],
        "norm": [Tile(rows, 0, warps=warps) for rows in (1, 2, 4) for warps in (2, 4)],
        "conv": [
            Tile(rows, 0, warps=warps, stages=stages)
            for rows, warps in ((16, 2), (16, 4), (32, 4), (64, 4), (128, 8))
            for stages in (2, 3, 4)
        ],
        "attention": [Tile(64, 64), Tile(64, 64, warps=8)],
        "qkv": layers,
        "widen": [*layers, *([Tile(128, 256, 64, 8)] if frames > 250 else [])],
        "narrow": layers,
        "out": layers,
        "enter": [Tile(32, 32, 64), Tile(32, 64, 64), Tile(64, 64, 64), Tile(128, 128, 64, warps=8)],
        "leave": [Tile(16, 16, 128), Tile(16, 32, 128), Tile(32, 32, 128), Tile(64, 32, 128)],
    }


def tiles_of(columns: list[int], rows: list[int], *rest: tuple[int, ...]) -> list[StepTile]:
    """Every combination; the rest are (piece, groups, warps, ahead)."""
    return [StepTile(r, c, *other) for c, r, other in itertools.product(columns, rows, rest)]


def _streamed(batch: int) -> Candidates:
    """Values to try for each field of tiles that stream their rows."""
    columns = next(size for size in (16, 32, 64) if batch <= size or size == 64)

    def tiles(rows: list[int], *rest: tuple[int, int]) -> list[StepTile]:
        shapes = itertools.product(rows, rest)
        return [StepTile(r, columns, piece, stages=stages) for r, (piece, stages) in shapes]

    return {
        "gated": [
            *tiles([16, 32, 64], (128, 2), (128, 3), (128, 4), (64, 3), (64, 5)),
            StepTile(128, columns, 64, warps=8, stages=3),
        ],
        "down": tiles([16, 32, 64], (128, 3), (128, 5), (256, 3), (64, 5)),
        "qkv": tiles([16, 32], (128, 3), (128, 4), (64, 4)),
        "out": tiles([16, 32, 64], (128, 3), (128, 5), (64, 5)),
        "head": tiles([32, 64, 128], (128, 2), (128, 3), (64, 4)),
        "trigger": [FIRST, EARLY, LATE],
        "keys": [32, 64, 128],
        "attention_warps": [2, 4, 8],
    }


def _held(batch: int) -> Candidates:
    """Values to try for each field of the tiles."""
    small, half, whole = (256, 4, 4), (512, 4, 4), (1024, 4, 4)
    wide_small, wide_half = (256, 8, 8), (512, 8, 8)
    common: Candidates = {
        "trigger": [FIRST, EARLY, LATE],
        "keys": [32, 64, 128],
        "split_programs": [32, 2 * batch],
    }
    if batch <= 4:
        pair, columns = (512, 2, 2), [size for size in (1, 2, 4) if size <= batch]
        alone: Candidates = {
            "gated": tiles_of(columns, [2, 4, 8], pair, whole),
            "down": tiles_of(columns, [2, 4], whole, pair, (2048, 8, 8), (1024, 4, 8)),
            "qkv": tiles_of(columns, [2, 4], pair, whole),
            "out": tiles_of(columns, [8, 16, 32], (1024, 16, 4), (1024, 16, 8)),
            "head": tiles_of(columns, [8, 16], pair, whole),
            **common,
            "split_programs": [8 * batch, 16 * batch],
            "max_splits": [2, 16],
        }
        if batch <= 2:
            return alone
        together = _held(16)
        return {
            name: list(dict.fromkeys([*values, *together.get(name, ())])) for name, values in alone.items()
        }
    if batch <= 16:
        return {
            "gated": tiles_of([16], [8, 16], small, half, whole, wide_small, wide_half),
            "down": tiles_of([16], [8, 16], half, whole, wide_small, wide_half, (1024, 8, 8)),
            "qkv": tiles_of([16], [8, 16], small, half, wide_half),
            "out": tiles_of([16], [16, 32], (1024, 16, 4), whole),
            "head": tiles_of([16], [16, 32], half, wide_half),
            **common,
        }
    deep = [(256, 8, 8, 4), (512, 8, 8, 1), (512, 8, 8, 2)]
    return {
        "down": tiles_of([16, 32], [16, 32], *deep),
        "gated": tiles_of([32, 64], [8, 16], small, half),
        "qkv": tiles_of([16], [8, 16], small, half),
        "out": tiles_of([16], [16, 32], (1024, 16, 4), half, (1024, 16, 8)),
        "head": tiles_of([32, 64], [32], wide_small),
        **common,
    }


def step_candidates(batch: int, best: StepTiles) -> Candidates:
    """Values to try for steps of some sequences, with rows held or streamed as in these tiles."""
    return _streamed(batch) if best.head.stages else _held(batch)
