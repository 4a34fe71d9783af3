"""What is reported of words that are heard of two formats of weights."""

from __future__ import annotations

from statistics import stdev

import pytest

import heard_weights


def reading(words: int, float32: int, int8: int) -> dict:
    return {
        "words": words,
        "errors": {"float32": float32, "int8": int8},
        "tokens": {"float32": 10, "int8": 11},
    }


def test_difference_of_what_is_heard_comes_with_its_error():
    found = heard_weights.summary([reading(10, 1, 2), reading(10, 2, 1), reading(20, 3, 5)])
    assert found["word_error_rate"] == {"float32": 6 / 40, "int8": 8 / 40}
    assert found["difference"] == pytest.approx(0.05)
    residuals = [0.5, -1.5, 1.0]
    assert found["standard_error"] == pytest.approx(stdev(residuals) / 3**0.5 / (40 / 3))
    assert found["tokens_of_int8_by_float32"] == pytest.approx(1.1)
