"""What is known of a text that comes piece by piece."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from cosyvoice_client import SpeechRequest
from cosyvoice_front.live import transcript
from cosyvoice_front.live.context import Context
from cosyvoice_front.live.manner import Manner
from cosyvoice_front.live.transcript import Transcript
from cosyvoice_front.pause import is_wordless
from cosyvoice_runtime.alignment.estimate import WordTimes


@pytest.mark.parametrize(
    ("pieces", "ends"),
    [
        (["One.", " ", "two!? "], [3, 3, 8]),
        (["...", "❤️", "\u200b", "a"], [0, 0, 0, 7]),
        (["a" + "." * 9999, "b"], [1, 10_001]),
        (["." * 4095 + "a" + "." * 4096], [4096]),
        (["", "你"], [0, 1]),
    ],
)
def test_end_of_the_last_word(pieces, ends):
    text = Transcript()
    for piece, end in zip(pieces, ends, strict=True):
        text.add(piece)
        assert text.worded == end


def test_text_is_looked_at_once(monkeypatch):
    looked_at = Counter()

    def counted(text, markup):
        looked_at["characters"] += len(text)
        return is_wordless(text, markup)

    monkeypatch.setattr(transcript, "is_wordless", counted)
    text = Transcript()
    for _ in range(1000):
        text.add(".")
    assert looked_at["characters"] <= 3000
    text.add("a" + "." * 100_000)
    assert looked_at["characters"] <= 3000 + 2 * 100_000


def test_spaces_are_not_kept_for_a_word():
    times = WordTimes()
    for _ in range(1000):
        times.add(" ")
    assert times._reader._tail == ""
    times.add("word ")
    assert [(word.text, word.end) for word in times._words] == [("word", 1004)]


def flushed(*pieces):
    """A context that has been flushed a hundred times after each piece, and is not run."""
    front = SimpleNamespace(markup=lambda asked: "auto", pool=None)
    context = Context(front, "anna", Manner(SpeechRequest("", words=True), "pcm", None, 1.0), None)
    for piece in pieces:
        context.push(piece)
        for _ in range(100):
            context.flush()
    return context


@pytest.mark.parametrize(
    ("pieces", "kept"), [([""], 1), (["One. "], 1), (["One. ", "two. "], 2), (["One. ", "... ", "!"], 1)]
)
def test_flushes_without_a_word_between_them_are_kept_as_one(pieces, kept):
    context = flushed(*pieces)
    assert len(context._asked) == kept
    assert sum(flush.told for flush in context._asked) == 100 * len(pieces)
    assert len(context._words._times._bars) == sum(map(bool, pieces))  # None at the beginning.
