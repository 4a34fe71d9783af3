"""Words of a segment, told as the path gets behind them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cosyvoice_runtime.alignment.spoken_text import matched
from cosyvoice_runtime.alignment.times import AT_ONCE, SegmentTimes, between
from cosyvoice_runtime.alignment.words import WordReader
from cosyvoice_runtime.checkpoint.alignment_heads import AlignmentHeads

HEADS = AlignmentHeads(((0, 0),), 1.0, 0.0, 1.0, "")


def segment(sent: str, text: str, cuts: list[int], heads: AlignmentHeads = HEADS) -> SegmentTimes:
    """Times of a text whose tokens end at these characters."""
    reader = WordReader()
    words = matched(reader.read(sent) + reader.finish(), [text])
    return SegmentTimes(words, text, list(zip([0, *cuts[:-1]], cuts, strict=True)), heads)


def looks(durations: list[int]) -> np.ndarray:
    """Rows that each look at one token only, float32 ``[rows, tokens]``."""
    return np.eye(len(durations), dtype=np.float32)[np.repeat(np.arange(len(durations)), durations)]


def rows(told):
    return [(each.word.text, each.start, each.end) for each in told]


def test_words_are_moved_by_what_the_heads_look_ahead():
    times = segment("one two three", "one two three", [3, 7, 13])
    told = times.push(looks([4, 5, 6])) + times.finish()
    assert rows(told) == [("one", 0, 5), ("two", 5, 10), ("three", 10, 15)]


def test_path_of_a_slow_speaker_is_further_ahead():
    slow = dataclasses.replace(HEADS, lead_per_pace=2.0)
    times = segment("one two three four", "one two three four", [3, 7, 13, 18], slow)
    *_, last = times.push(looks([4, 13, 21, 9])) + times.finish()
    pace = (13 + 21 - 2 + 20) / (8 + 20)
    assert last.start == pytest.approx(38 + 1 + 2 * (pace - 1))


def test_word_of_several_tokens_and_one_of_several_words():
    times = segment("pay $21 now.", "pay twenty one dollars now.", [3, 7, 10, 14, 22, 26, 27])
    told = times.push(looks([4, 4, 4, 4, 8, 4, 3])) + times.finish()
    assert rows(told) == [("pay", 0, 5), ("$21", 5, 25), ("now.", 25, 31)]


def test_words_within_one_token_share_its_rows():
    times = segment("你好吗", "你好吗", [2, 3])
    told = times.push(looks([8, 6])) + times.finish()
    assert [each.word.text for each in told] == ["你", "好", "吗"]
    assert [each.start for each in told] == pytest.approx([0, 5, 9])


def test_word_is_told_when_its_end_is_settled_and_only_once():
    times, durations = segment("one two three", "one two three", [3, 7, 13]), [4, 16, 16]
    told = [[each.word.text for each in times.push(row[None])] for row in looks(durations)]
    assert [at for at, words in enumerate(told) if words] == [2 * AT_ONCE - 1, 3 * AT_ONCE - 1]
    assert [word for words in told for word in words] == ["one", "two"]
    assert [each.word.text for each in times.finish()] == ["three"]


@pytest.mark.parametrize("place", [-1.0, 0.0, 0.25, 1.0, 2.5, 3.0, 7.5])
def test_a_place_between_values_is_on_the_line_between_them(place):
    values = [2, 3, 3, 10]
    assert between(values, place) == np.interp(place, range(4), values)
