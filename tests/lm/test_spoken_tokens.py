"""What a text has been spoken with, as one list of numbers, and what is no such list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.generation import FinishReason, TokenLimits
from cosyvoice_runtime.lm.spoken import ENDS, MOST_SPOKEN, by_segment, parted, told, within

TOKENS = 70
tokens = st.lists(st.integers(0, TOKENS - 1), max_size=5)
LIMITS = TokenLimits(0, 3)


@given(st.lists(st.tuples(tokens, st.sampled_from(list(ENDS)))), tokens)
def test_segments_come_out_as_they_went_in(ended, last):
    spoken = [id_ for each in ended for id_ in told(*each)] + told(last, None)
    segments = [parted(segment) for segment in by_segment(np.array(spoken, np.int32), TOKENS)]
    assert segments == [*ended, *([(last, None)] if last else [])]


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=8))
def test_any_numbers_are_segments_or_refused(spoken):
    wrong = [id_ for id_ in spoken if not -3 <= id_ < TOKENS]
    if not wrong:
        assert [
            id_ for segment in by_segment(np.array(spoken, np.int32), TOKENS) for id_ in segment
        ] == spoken
        return
    limit = "tokens are 0 to 69, ends -3 to -1"
    with pytest.raises(InvalidInput) as refusal:
        by_segment(np.array(spoken, np.int32), TOKENS)
    assert (refusal.value.field, refusal.value.limit) == ("spoken_tokens", limit)
    assert f"'{wrong[0]} at position {spoken.index(wrong[0])}'" in str(refusal.value)


def test_too_much_is_refused():
    by_segment(np.ones(MOST_SPOKEN, np.int32), TOKENS)
    with pytest.raises(InvalidInput, match="spoken_tokens: '65537 numbers' is not accepted; at most 65536"):
        by_segment(np.ones(MOST_SPOKEN + 1, np.int32), TOKENS)
    with pytest.raises(InvalidInput, match="'4 tokens of a segment' is not accepted; at most 3"):
        within(LIMITS, [1, 1, 1, 1, -1])


@pytest.mark.parametrize(
    ("spoken", "found"), [([1, 2], None), ([1, 1, 1], FinishReason.LENGTH), ([-1], FinishReason.STOP)]
)
def test_segment_ends_where_it_is_as_long_as_it_may_be(spoken, found):
    assert parted(within(LIMITS, spoken))[1] is found
