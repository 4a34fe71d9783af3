"""Errors that are made on purpose, and the file that keeps their rows."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from measuring.misspoken import FOREIGN, Speech, read, write, wrongs


@pytest.mark.parametrize("words", [5, 6, 12])
def test_each_error_is_one_place_in_the_right_order(words):
    every = list(range(words))
    for seed in range(20):
        for wrong in wrongs(words, Random(seed)):
            left, right = wrong.order[: wrong.first], wrong.order[wrong.end :]
            assert left == every[: len(left)], wrong
            assert right == every[len(every) - len(right) :], wrong
            assert wrong.order != every
            if wrong.kind.startswith("repeats"):
                assert len(wrong.order) - words == int(wrong.kind.split()[1]) == wrong.end - wrong.first
            assert all(-FOREIGN <= word < words for word in wrong.order)


def test_kept_rows_are_read_again(tmp_path):
    rows = np.float32([[0.25, 0.75], [1, 0], [0.5, 0.5]])
    spans = [(0, 5), (5, 6)]
    speeches = [
        Speech("right", "drawn", "Héllo.", spans, rows),
        Speech("loops", "forced", "", [], rows, 1, 3),
    ]
    write(tmp_path / "rows.npz", speeches)
    for found, wanted in zip(read(tmp_path / "rows.npz"), speeches, strict=True):
        assert (*found[:3], *found[5:]) == (*wanted[:3], *wanted[5:])
        assert [tuple(span) for span in found.spans] == wanted.spans
        np.testing.assert_array_equal(found.rows, wanted.rows)
