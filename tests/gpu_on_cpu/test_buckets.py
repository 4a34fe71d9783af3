"""Sizes of captured calls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.gpu.buckets import batch_buckets, bucket_for, finer_bucket, finer_buckets


@pytest.mark.parametrize(("most", "sizes"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8])])
def test_batch_buckets_double_up_to_the_most(most, sizes):
    assert batch_buckets(most) == sizes


@pytest.mark.parametrize(
    ("most", "sizes"),
    [
        (3, [1, 2, 3]),
        (16, [1, 2, 4, 8, 12, 16]),
        (20, [1, 2, 4, 8, 12, 16, 20]),
        (32, [1, 2, 4, 8, 12, 16, 24, 32]),
    ],
)
def test_finer_buckets_have_a_size_between_two_large_ones(most, sizes):
    assert finer_buckets(most) == sizes


@given(st.integers(1, 64))
def test_rows_are_computed_as_the_next_of_the_finer_buckets(rows):
    assert finer_bucket(rows) == bucket_for(finer_buckets(64), rows)


def test_nothing_holds_more_than_the_largest():
    with pytest.raises(IndexError):
        bucket_for([1, 2], 3)
