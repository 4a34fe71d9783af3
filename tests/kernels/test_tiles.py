"""Tiles by how much work there is and how much of it a GPU does at once."""

from __future__ import annotations

import pytest

from cosyvoice_runtime.gpu.kernels.tiles import ALONE, JOINT, LARGE, LEAN, MEDIUM, SMALL, UNET_TILES, UNSPLIT


@pytest.mark.parametrize(
    ("programs", "joint"), [(200, JOINT), (201, LEAN), (300, LEAN), (301, JOINT), (401, LEAN), (600, LEAN)]
)
def test_attention_is_lean_where_its_programs_then_take_fewer_turns(programs, joint):
    assert MEDIUM.crowded(programs, multiprocessors=100).joint == joint


def test_attention_in_two_kernels_stays_as_it_is():
    assert SMALL.crowded(programs=10_000, multiprocessors=10) is SMALL


@pytest.mark.parametrize(
    ("utterances", "multiprocessors", "tiles"),
    [
        *((1, 132, SMALL), (4, 132, ALONE), (8, 132, MEDIUM), (16, 132, UNSPLIT), (32, 132, LARGE)),
        *((1, 48, ALONE), (2, 48, MEDIUM), (8, 48, UNSPLIT), (16, 48, LARGE)),
        *((1, 16, MEDIUM), (2, 16, UNSPLIT), (4, 16, LARGE)),
    ],
)
def test_a_part_of_a_gpu_has_the_tiles_of_more_utterances_on_a_whole_one(utterances, multiprocessors, tiles):
    assert UNET_TILES.of(2 * 50 * utterances / multiprocessors) is tiles
