"""Findings in speech that looks at its text in a known way."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from cosyvoice_runtime.alignment.coverage import Coverage, Finding
from cosyvoice_runtime.alignment.words import letters

TEXT = "The old grey horse, it carried seven letters over hill and dale."
PACE = 1.2
WORDS = [match.span() for match in re.finditer(r" ?\S+", TEXT)]
SPANS = [span for start, end in WORDS for span in ([(start, end - 1), (end - 1, end)]
         if TEXT[end - 1] in ",." else [(start, end)])]  # fmt: skip
TOKENS = [TEXT[start:end] for start, end in SPANS]
EVERY = list(range(len(TOKENS)))
MARK = 4


def rows_of(token: int) -> int:
    return round(1 + PACE * letters(TOKENS[token])) if letters(TOKENS[token]) else 4


def looks(order: Sequence[int], share: float = 0.9) -> np.ndarray:
    """Rows that look at these tokens one after another, and a little at all others."""
    places = [token for token in order for _ in range(rows_of(token))]
    rows = np.full((len(places), len(TOKENS)), (1 - share) / (len(TOKENS) - 1), np.float32)
    rows[np.arange(len(places)), places] = share
    return rows


def followed(*rows: np.ndarray) -> Coverage:
    coverage = Coverage(TEXT, SPANS, PACE)
    for each in rows:
        coverage.push(each)
    return coverage


def found(*rows: np.ndarray) -> list[tuple[str, str]]:
    return [(each.kind, TEXT[each.start : each.end]) for each in followed(*rows).findings()]


def test_right_speech_has_no_findings_in_rows_of_any_number():
    rows = looks(EVERY)
    assert found(rows) == []
    assert found(*(row[None] for row in rows)) == []
    assert followed(rows).reached == len(TEXT)


def test_slower_or_faster_speech_is_right():
    rows = looks(EVERY)
    assert found(np.repeat(rows, 2, axis=0)) == []
    assert found(rows[::2]) == []


def test_glance_ahead_and_back_is_right():
    assert found(looks(EVERY[:6]), looks([6])[:2], looks(EVERY[5:])) == []


def test_last_pause_may_look_anywhere():
    assert found(looks(EVERY), looks([1])[:4]) == []


@pytest.mark.parametrize(("first", "end"), [(1, 2), (5, 6), (6, 8), (0, 2)])
def test_skipped_words_are_told(first, end):
    skipped = TEXT[SPANS[first][0] : SPANS[end - 1][1]]
    assert found(looks(EVERY[:first] + EVERY[end:])) == [("skipped", skipped)]


@pytest.mark.parametrize("last", [1, 5, 9])
def test_early_end_is_told_with_the_text_that_is_left(last):
    coverage = followed(looks(EVERY[:last]))
    row = len(looks(EVERY[:last]))
    assert coverage.findings() == [Finding("unfinished", SPANS[last][0], len(TEXT), row)]
    assert coverage.reached == SPANS[last - 1][1]


def test_speech_of_nothing_is_unfinished():
    assert followed().findings() == [Finding("unfinished", 0, len(TEXT), 0)]
    assert followed().reached == 0


@pytest.mark.parametrize(("first", "end"), [(1, 3), (5, 7), (6, 9)])
def test_repeated_words_are_told(first, end):
    again = TEXT[SPANS[first][0] : SPANS[end - 1][1]]
    assert found(looks(EVERY[:end] + EVERY[first:])) == [("repeated", again)]


def test_word_that_does_not_end_is_held():
    rows = np.concatenate([looks(EVERY[:7]), looks([6]), looks([6]), looks([6]), looks(EVERY[7:])])
    assert found(rows) == [("held", TOKENS[6])]


def test_long_silence_at_a_mark_is_held():
    assert found(looks(EVERY[:MARK]), *[looks([MARK])] * 4, looks(EVERY[MARK:])) == []
    pause = found(looks(EVERY[:MARK]), *[looks([MARK])] * 7, looks(EVERY[MARK:]))
    assert pause == [("held", TEXT[slice(*WORDS[3])])]


def test_speech_that_looks_at_nothing_is_astray():
    babble = np.full((30, len(TOKENS)), 1 / len(TOKENS), np.float32)
    assert "astray" in dict(found(looks(EVERY[:5]), babble, looks(EVERY[5:])))


def test_loop_stalls_and_right_speech_never_does():
    coverage = followed()
    for row in looks(EVERY[:7] + EVERY[4:7] * 3):
        coverage.push(row[None])
        if coverage.has_stalled:
            break
    assert coverage.has_stalled
    assert len(looks(EVERY[:6])) < coverage.stalled_row <= len(looks(EVERY[:7]))
    assert coverage.reached in (SPANS[5][1], SPANS[6][1])
    right = followed()
    for row in looks(EVERY):
        right.push(row[None])
        assert not right.has_stalled


@pytest.mark.parametrize("step", [1, 7, 1_000])
def test_stall_that_ends_is_one_in_rows_of_any_number(step):
    """Whether a segment is drawn again does not depend on how its rows came together."""
    rows = np.concatenate([looks(EVERY[:7]), np.repeat(looks(EVERY[6:7])[:1], 200, axis=0), looks(EVERY[7:])])
    coverage = followed(*(rows[start : start + step] for start in range(0, len(rows), step)))
    assert coverage.has_stalled
    assert coverage.stalled_row <= len(looks(EVERY[:7]))
    assert coverage.reached == SPANS[6][1]


def test_characters_without_spaces_are_words_of_their_own():
    text = "今天天气很好"
    spans = [(0, 2), (2, 3), (3, 4), (4, 5), (5, 6)]
    rows = np.repeat(np.eye(5, dtype=np.float32)[[0, 1, 3, 4]], 5, axis=0)
    coverage = Coverage(text, spans, PACE)
    coverage.push(rows)
    assert [(each.kind, text[each.start : each.end]) for each in coverage.findings()] == [("skipped", "气")]
