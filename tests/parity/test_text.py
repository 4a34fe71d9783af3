"""Normalisation and splitting against upstream without a normalisation library (``rules`` mode).

Where this library differs on purpose, its own text is pinned; every other text must come out equal.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from goldens import settings

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.speakable import is_speakable
from cosyvoice_runtime.text import chinese
from cosyvoice_runtime.text.frontend import TextFrontEnd
from cosyvoice_runtime.text.normalise import Normaliser
from cosyvoice_runtime.text.reading import FormReader
from cosyvoice_runtime.text.reading.languages.english import ENGLISH
from cosyvoice_runtime.text.split import CHINESE, WESTERN, SplitLimits, split

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


PRICE = "In 1999 the price was $45.50; now it is 100."
PRICE_IN_WORDS = (
    "In nineteen ninety nine the price was forty-five dollars and fifty cents; now it is one hundred."
)
"""Upstream reads each run of digits by itself, and leaves the sign in front: ``$forty-five.fifty``."""

GROUPED = "It costs 1,000,000 dollars and 007 agents."
GROUPED_IN_WORDS = "It costs one million dollars and zero zero seven agents."
"""Upstream drops zeros in front: ``one,zero,zero dollars and seven agents``."""

CHINESE_TEXTS = {
    "这是3.14 - 圆周率": "这是三点一四-圆周率",
    "今天气温是 25 度，湿度 60%。": "今天气温是二十五度，湿度百分之六十。",
    "面积是10 m²，体积是3 m³": "面积是十平方米，体积是三立方米",
}
"""Without a library upstream leaves numbers, and makes the dot of one a full stop."""

MIXED = "中英 mixed text, 包括 numbers 123 and 标点. 还有 English sentences! 以及中文句子。" * 3
MIXED_IN_WORDS = "中英mixed text,包括numbers一百二十三and标点。还有English sentences!以及中文句子。" * 3
SECOND = MIXED_IN_WORDS.index("还有", MIXED_IN_WORDS.index("以及"))
"""The place where the second segment begins."""

LINES = "\n换行\n文本。"
"""Upstream says two lines as one."""

OWN: dict[str, dict[str, Any]] = {
    "normalize_split": {
        PRICE: [PRICE_IN_WORDS],
        GROUPED: [GROUPED_IN_WORDS],
        **{text: [f"{words.rstrip('。')}。"] for text, words in CHINESE_TEXTS.items()},
        MIXED: [MIXED_IN_WORDS[:SECOND], MIXED_IN_WORDS[SECOND:]],
        LINES: ["换行。文本。"],
    },
    "normalize_nosplit": {
        PRICE: PRICE_IN_WORDS,
        GROUPED: GROUPED_IN_WORDS,
        **CHINESE_TEXTS,
        MIXED: MIXED_IN_WORDS,
    },
    "spell_out_number": {
        PRICE: PRICE_IN_WORDS,
        GROUPED: GROUPED_IN_WORDS,
    },
}
"""What this library makes of the texts that it reads otherwise than upstream, by kind of golden."""


def check(name: str, case: Case, actual: Any) -> None:
    """Equal to this library's pinned text if there is one, else to the golden."""
    if name in case:
        assert actual == OWN[name].get(case["text"], case[name])


@pytest.fixture(scope="module")
def front_end() -> TextFrontEnd:
    return TextFrontEnd(StandInTokenizer(), normaliser="rules")


@pytest.mark.parametrize("name", OWN)
def test_pinned_texts_are_cases_that_upstream_reads_otherwise(name: str) -> None:
    goldens = {case["text"]: case.get(name) for case in settings("text")["cases"]}
    assert all(goldens[text] not in (None, own) for text, own in OWN[name].items())


@pytest.mark.parametrize("case", CASES)
def test_normalised_and_split_text_equals_upstream_or_is_pinned(front_end: TextFrontEnd, case: Case) -> None:
    """A segment of only punctuation and spaces is dropped here; upstream keeps it if it holds a space."""
    try:
        segments = front_end.segments(case["text"])
    except InvalidInput:
        segments = []
    spoken = [segment for segment in case.get("normalize_split", []) if is_speakable(segment)]
    check("normalize_split", case | {"normalize_split": spoken}, segments)


@pytest.mark.parametrize("case", CASES)
def test_normalised_text_equals_upstream_or_is_pinned(case: Case) -> None:
    check("normalize_nosplit", case, Normaliser("rules")(case["text"]))


@pytest.mark.parametrize("case", [case for case in CASES if case.values[0]["text"].isascii()])
def test_number_words_equal_upstream_or_are_pinned(case: Case) -> None:
    check("spell_out_number", case, FormReader(ENGLISH)(case["text"]))


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
