"""Normalisation and splitting against upstream without a normalisation library (``rules`` mode).

Where this library differs on purpose, the difference is a rule about the text and has a reason; a text to
which no rule applies must come out equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from goldens import settings

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.text import chinese, english
from cosyvoice_runtime.text.frontend import TextFrontEnd
from cosyvoice_runtime.text.language import detect
from cosyvoice_runtime.text.normalise import Normaliser
from cosyvoice_runtime.text.split import CHINESE, WESTERN, SplitLimits, split
from cosyvoice_runtime.text.validate import is_speakable

CASES = [
    pytest.param(case, id=f"{index}-{case['text'][:12]!r}")
    for index, case in enumerate(settings("text")["cases"])
]
DEFAULT = SplitLimits(hard=None)
SMALL = SplitLimits(maximum=30, minimum=15, merge=8, hard=None)
UPSTREAM_CHINESE = replace(CHINESE, keep_words=False)
UPSTREAM_WESTERN = replace(WESTERN, keep_words=False)

Case = dict[str, Any]


class StandInTokenizer:
    """Counts as the goldens' stand-in for the Qwen2 tokenizer did."""

    def count(self, text: str) -> int:
        return len(re.findall(r"\w+|[^\w\s]", text))


def found(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.search(pattern, text, re.ASCII) is not None


DIFFERENCES: dict[str, Callable[[str], bool]] = {
    "whitespace alone is refused; upstream's splitter crashes": lambda text: not text.strip(),
    "grouped and decimal numbers are one number; upstream reads each run of digits": found(r"\d[.,]\d|\.\d"),
    "amounts are read with their currency; upstream leaves the sign in front": found(r"[$€£¥]\s?\d"),
    "leading zeros are read (007); upstream drops them": found(r"(?<!\d)0\d"),
    "very long runs of digits are read one by one; upstream says quadrillions or crashes": found(r"\d{16}"),
    "superscripts stay; upstream's digit test reads them as zero": lambda text: any(
        character.isdigit() and not character.isascii() for character in text
    ),
    "numbers of a language that isn't English stay; upstream reads them in English": lambda text: (
        detect(text) == "und" and any(map(str.isdigit, text))
    ),
    "Japanese and Korean pass untouched; upstream treats kanji as Chinese": lambda text: (
        detect(text) in ("ja", "ko")
    ),
    "a dot inside a word or address isn't a full stop; upstream's Chinese path makes it one": found(
        r"[0-9A-Za-z]\.[0-9A-Za-z]"
    ),
    "a mark inside a word or after an abbreviation ends no piece": found(
        r"[0-9A-Za-z][.:;?!][0-9A-Za-z]|\b[A-Za-z]{2,6}\. (?=[0-9a-z])|\b(?i:mr|mrs|ms|dr|prof|st)\. "
    ),
    "line breaks are spaces outside Chinese; upstream keeps them": lambda text: (
        detect(text) != "zh" and re.search(r"[\t\r\n]", text.strip()) is not None
    ),
    "tabs and carriage returns in Chinese are blanks; upstream keeps them": found(r"[\t\r]"),
    "a line break between Latin words of Chinese text is a space; upstream joins the words": found(
        r"[!-~]\s*\n\s*[!-~]"
    ),
    "a sentence beyond the hard limit is cut; upstream never cuts one": found(r"[^。？！；：、.?!;:]{160}"),
    "control characters are refused; upstream passes them on": found(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"),
}


def documented(text: str) -> list[str]:
    """Reasons for which this text may come out otherwise than upstream."""
    return [reason for reason, applies in DIFFERENCES.items() if applies(text)]


def check(name: str, case: Case, actual: Any) -> None:
    """Equal to the golden, or different for a documented reason (an expected failure, listed by ``-rx``)."""
    if name not in case or actual == case[name]:
        return
    reasons = documented(case["text"])
    assert reasons, f"{name} of {case['text']!r}: {actual!r} is not {case[name]!r}"
    pytest.xfail(f"documented difference: {'; '.join(reasons)}")


@pytest.fixture(scope="module")
def front_end() -> TextFrontEnd:
    return TextFrontEnd(StandInTokenizer(), normaliser="rules")


@pytest.mark.parametrize("case", CASES)
def test_normalised_and_split_text_equals_upstream(front_end: TextFrontEnd, case: Case) -> None:
    """A piece of only punctuation and spaces is dropped here; upstream keeps it if it holds a space."""
    try:
        segments = front_end.segments(case["text"])
    except InvalidInput:
        segments = []
    spoken = [piece for piece in case.get("normalize_split", []) if is_speakable(piece)]
    check("normalize_split", case | {"normalize_split": spoken}, segments)


@pytest.mark.parametrize("case", CASES)
def test_normalised_text_equals_upstream(case: Case) -> None:
    check("normalize_nosplit", case, Normaliser("rules")(case["text"]))


@pytest.mark.parametrize("case", CASES)
def test_number_words_equal_upstream(case: Case) -> None:
    check("spell_out_number", case, english.apply(english.number_rules(), case["text"]))


@pytest.mark.parametrize("case", CASES)
def test_clean_up_steps_equal_upstream(case: Case) -> None:
    """Blanks of stripped text only: at the ends upstream's helper looks at the other end, or fails."""
    text = case["text"]
    assert chinese.remove_brackets(text) == case.get("remove_bracket", chinese.remove_brackets(text))
    if "replace_blank" in case and text == text.strip(" "):
        assert chinese.drop_blanks(text) == case["replace_blank"]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("suffix", "limits", "commas"), [("", DEFAULT, False), ("_small", SMALL, False), ("_comma", SMALL, True)]
)
def test_split_equals_upstream(case: Case, suffix: str, limits: SplitLimits, commas: bool) -> None:
    """With upstream's own style every text is equal: no difference is allowed here."""
    for name, style, count in (
        ("split_zh", UPSTREAM_CHINESE, len),
        ("split_en", UPSTREAM_WESTERN, StandInTokenizer().count),
    ):
        if (golden := case.get(name + suffix)) is not None:
            style = replace(style, marks=style.marks + "，,") if commas else style
            assert split(case["text"], style, limits, count) == golden
