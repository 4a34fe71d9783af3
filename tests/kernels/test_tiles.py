"""Tiles by how much work there is and how much of it a GPU does at once."""

from __future__ import annotations

from cosyvoice_runtime.kernels.tiles import JOINT, LEAN, MEDIUM, SMALL


def test_attention_is_lean_where_its_programs_would_take_turns():
    assert MEDIUM.crowded(programs=200, multiprocessors=100).joint == JOINT
    assert MEDIUM.crowded(programs=201, multiprocessors=100).joint == LEAN


def test_attention_in_two_kernels_stays_as_it_is():
    assert SMALL.crowded(programs=10_000, multiprocessors=10) is SMALL
