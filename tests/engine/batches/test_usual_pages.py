"""What is learned of how many pages utterances hold."""

from __future__ import annotations

import pytest

from cosyvoice_runtime.engine.batches.voices import UsualPages


def learned(*pages: int) -> UsualPages:
    usual = UsualPages()
    for _ in range(500):
        for each in pages:
            usual.learn(each)
    return usual


def test_of_equal_utterances_those_in_progress_hold_half_of_what_they_will():
    usual = learned(8)
    assert usual.at_end == 8
    assert usual.in_progress == pytest.approx(4, rel=0.01)


def test_few_long_utterances_are_most_of_what_is_held():
    """Of ten seconds, nine are the long one's: whoever looks finds it, in the middle on average."""
    usual = learned(*[1] * 9, 81)
    assert usual.at_end == pytest.approx(9, abs=1)
    assert usual.in_progress == pytest.approx((9 + 81**2) / (2 * 90), rel=0.1)


def test_before_any_has_ended_twelve_seconds_are_expected():
    assert UsualPages().at_end == 12
    assert 6 < UsualPages().in_progress < 12
