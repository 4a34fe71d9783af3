"""Validation names the field."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.sampling import SamplingOptions


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("strategy", "beam"),
        ("top_k", -1),
        ("top_k", 2.5),
        ("top_k", True),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("top_p", float("nan")),
        ("temperature", 0.0),
        ("temperature", float("inf")),
        ("temperature", "hot"),
        ("repetition_penalty", 0.0),
        ("seed", -1),
        ("seed", 2**63),
        ("min_tokens", -1),
        ("max_tokens", 0),
        ("window", 0),
        ("tau", -0.1),
        ("max_ratio", float("nan")),
        ("runaway_span", -1),
        ("runaway_period", 0),
    ],
)
def test_value_out_of_range_is_named(field: str, value: Any) -> None:
    with pytest.raises(InvalidInput) as error:
        SamplingOptions(**{field: value})
    assert error.value.field == field


def test_minimum_above_maximum_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"min_tokens: 6.*max_tokens"):
        SamplingOptions(min_tokens=6, max_tokens=5)


def test_message_tells_the_range() -> None:
    with pytest.raises(InvalidInput, match=r"top_p: 3 is not accepted; a number from 1e-06 to 1"):
        SamplingOptions(top_p=3)


def test_whole_numbers_pass_as_numbers() -> None:
    assert SamplingOptions(temperature=1, top_p=1).top_p == 1


@pytest.mark.parametrize(("window", "tau", "repeats"), [(10, 0.1, 1), (10, 0.11, 2), (20, 0.1, 2)])
@pytest.mark.parametrize("kind", [float, np.float32])
def test_a_threshold_that_came_as_float32_is_met_by_as_many_repeats(window, tau, repeats, kind):
    assert SamplingOptions(window=window, tau=float(kind(tau))).most_repeats == repeats
