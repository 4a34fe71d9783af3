"""Words of a text, found in its segments while these are read."""

from __future__ import annotations

import pytest

from cosyvoice_runtime.alignment import said_words
from cosyvoice_runtime.alignment.said_words import LOOK_AHEAD, WINDOW, words_by_segment
from cosyvoice_runtime.alignment.spoken_text import matched
from cosyvoice_runtime.alignment.words import read_words
from cosyvoice_runtime.text import Segment

WORDS = [f"word{place % 7}" if place % 3 else f"${place}." for place in range(300)]
TEXTS = [" ".join(WORDS[place : place + 5]).replace("$", "dollars ") for place in range(0, 300, 5)]


def segments(behind: int = 0) -> list[Segment]:
    ends = [len(" ".join(WORDS[: place + 5])) + behind for place in range(0, 300, 5)]
    return [Segment(said, characters=end) for said, end in zip(TEXTS, ends, strict=True)]


@pytest.mark.parametrize("behind", [0, 3, -3])
def test_words_that_are_found_window_by_window_are_those_found_at_once(behind):
    """The ends of segments may be known about alone."""
    words = read_words(" ".join(WORDS))
    found = list(words_by_segment(words, segments(behind)))
    assert [segment.text for segment, _ in found] == TEXTS
    assert [word.word for _, said in found for word in said] == words
    places = [word[2:] for _, said in found for word in said]
    assert places == [word[2:] for word in matched(words, TEXTS)]
    assert [len(said) for _, said in found] == [5] * 60


def test_few_segments_are_read_ahead_and_looked_at_together(monkeypatch):
    read, together = 0, []

    def counted():
        nonlocal read
        for segment in segments():
            read += 1
            yield segment

    def noted(words, texts):
        together.append(len(texts))
        return matched(words, texts)

    monkeypatch.setattr(said_words, "matched", noted)
    most = WINDOW + LOOK_AHEAD
    for number, _ in enumerate(words_by_segment(read_words(" ".join(WORDS)), counted())):
        assert read <= number + most + WINDOW
    assert read == 60
    assert max(together) <= most


def test_silence_at_the_end_says_no_words():
    [said, silence] = words_by_segment(
        read_words("One two."), [Segment("One two.", characters=8), Segment("", 1.0)]
    )
    assert [word.word.text for word in said[1]] == ["One", "two."]
    assert silence[1] == []
