"""Errors of words and characters, counted by hand and as seed-tts-eval counts them."""

from __future__ import annotations

import pytest

from measuring.word_errors import Errors, error_figures, errors, require_words, units
from measuring.workload import Utterance, WorkloadError


@pytest.mark.parametrize(
    ("text", "heard", "wrong", "of"),
    [
        ("The cat sat.", "the cat sat", 0, 3),
        ("The cat sat.", "the hat sat", 1, 3),
        ("The cat sat.", "the cat", 1, 3),
        ("The cat sat.", "the big cat sat down", 2, 3),
        ("One two three four.", "", 4, 4),
        ("Yes.", "no not at all", 4, 1),
    ],
)
def test_english_is_counted_in_words(text, heard, wrong, of):
    found = errors(text, heard, "en")
    assert (found.wrong, found.units, found.rate) == (wrong, of, wrong / of)


@pytest.mark.parametrize(
    ("text", "heard", "wrong", "of"),
    [
        ("今天天气很好。", "今天天气很好", 0, 6),
        ("今天天气很好。", "今天天汽好", 2, 6),
        ("我有 iPhone。", "我有iphone", 1, 8),
    ],
)
def test_chinese_is_counted_in_characters_whose_case_counts(text, heard, wrong, of):
    found = errors(text, heard, "zh")
    assert (found.wrong, found.units) == (wrong, of)


def test_marks_leave_no_space_and_the_apostrophe_of_ascii_stays():
    assert units("Don't -- a well-known “THING”, don’t…", "en") == [
        "don't",
        "a",
        "wellknown",
        "thing",
        "dont",
    ]
    assert units("「你好」，世 界！", "zh") == ["你", "好", "世", "界"]


def test_mean_of_sentences_is_not_the_rate_of_all_words():
    """Rates of 100 %, 0 % and 50 %: their standard deviation is 50 points."""
    figures = error_figures([Errors(1, 1), Errors(0, 7), Errors(1, 2)])
    assert figures == {
        "sentences": 3,
        "units": 10,
        "mean": 50.0,
        "standard_error": pytest.approx(50 / 3**0.5, abs=1e-3),
        "corpus": 20.0,
    }


def test_one_sentence_has_no_standard_error():
    assert error_figures([Errors(1, 4)])["standard_error"] is None


def test_text_of_marks_alone_is_named():
    with pytest.raises(WorkloadError, match=r"utterance b: .*'\.\.\.'"):
        require_words([Utterance("a", "Well."), Utterance("b", "...")], "en")
