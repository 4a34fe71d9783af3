"""What the host does for a turn of token2wav does not grow with its rows, but for first chunks' noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

import turn_operations
from turn_operations import Counted, Turns

ROWS = 8
NOISE = {"randn", "numpy"}
"""Of each row: drawn from its own generator."""


@pytest.fixture(scope="module")
def turns(tiny_checkpoint) -> Iterator[Turns]:
    with turn_operations.on_a_stand_in(tiny_checkpoint) as turns:
        yield turns


@pytest.fixture(scope="module")
def going_on(turns) -> tuple[Counted, Counted]:
    """Operations of a turn of chunks that go on."""
    return turns.warm(lambda: turns.next(ROWS))


def without_noise(counted: Counted) -> int:
    names: Counter[str] = Counter()
    for (_, name), count in counted.places.items():
        names[name] += count
    return sum(count for name, count in names.items() if name not in NOISE)


@pytest.mark.parametrize("speed", [1.0, 1.2])
def test_first_chunks_take_as_many_operations_however_many_they_are(turns, speed):
    counts = {rows: turns.warm(lambda rows=rows: turns.first(rows, speed)) for rows in (1, 2, ROWS)}
    launches = {rows: without_noise(launch) for rows, (launch, _) in counts.items()}
    assert len(set(launches.values())) == 1
    assert launches[1] <= 25
    assert {end.places.total() for _, end in counts.values()} == {1}


def test_chunks_that_go_on_take_as_many_operations_as_first_ones(turns, going_on):
    first, _ = turns.warm(lambda: turns.first(ROWS))
    further, end = going_on
    assert without_noise(further) <= without_noise(first)
    assert further.places.total() - without_noise(further) == ROWS * len(NOISE)  # each row draws its own
    assert end.places.total() == 1


def test_at_another_speed_each_row_is_one_operation_more(turns, going_on):
    """What is kept of the chunk before."""
    faster, _ = turns.warm(lambda: turns.next(ROWS, 1.2))
    assert without_noise(faster) <= without_noise(going_on[0]) + ROWS + 2


def test_figures_are_a_table(turns, capsys, monkeypatch):
    monkeypatch.setattr(turn_operations, "on_a_stand_in", lambda _: nullcontext(turns))
    monkeypatch.setattr(turn_operations, "WARM", 1)
    turn_operations.main([])
    assert "| 16 chunks that go on, speed 1.2 |" in capsys.readouterr().out
