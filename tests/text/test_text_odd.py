"""Texts that nobody thought of: each is spoken or refused."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_tokenizer import WordCounter

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families import COSYVOICE3
from cosyvoice_runtime.text.frontend import TextFrontEnd
from cosyvoice_runtime.text.split import SplitLimits

FRONT_END = TextFrontEnd(WordCounter(), cached_texts=0)
TOLD = TextFrontEnd(WordCounter(), cached_texts=0, family=COSYVOICE3, polyphones=True)
LONGEST = SplitLimits().longest or 0


@pytest.mark.parametrize(
    ("text", "segment"),
    [
        ("你\u200b好2\u200b个", "你好两个。"),
        ("\ufeffco\u00adoperate \u202e3\u202c", "cooperate three."),
        ("Press 1\ufe0f\u20e3 now", "Press one now."),
        ("ｈｅｌｌｏ ３ ｗｏｒｌｄ", "hello three world."),
        ("𝐇𝐞𝐥𝐥𝐨 𝟑", "Hello three."),
        ("3\u00a0000\u202f000 and 3\u2009000", "three million and three thousand."),
        ("你\u3000好\u30003", "你好三。"),
        ("①②③, x²y 10⁵", "one two three, x squared y ten to the power of five."),
        ("10⁵和①", "十的五次方和一。"),
        ("a" + " " * 5000 + "b", "a b."),
        ("1" * 40, " ".join(["one"] * 40) + "."),
        ("编号" + "1" * 40, "编号" + "一" * 40 + "。"),
        ("مرحبا 3 قطط", "مرحبا 3 قطط."),
        ("ฉันมี ๓ แมว", "ฉันมี ๓ แมว."),
        ('[[3]] {"a": 3}', '[[three]] {"a": three}.'),
        (r"公式$E=mc^2$", "公式E等于m c的二次方。"),
        ("我有3隻貓", "我有三隻貓。"),
        ("𠮷野家で3個", "𠮷野家で三個。"),
    ],
)
def test_odd_text_is_spoken(text: str, segment: str) -> None:
    assert FRONT_END.segments(text) == [segment]


@pytest.mark.parametrize(
    "text",
    ["😀👨\u200d👩", "\u200b\u200b", "\ufe0f", "\u202e!", "。。。！", "\ue000", "#" * 500, "\x85"],
)
def test_text_with_nothing_to_speak_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="target_text"):
        FRONT_END.segments(text)


@pytest.mark.parametrize(
    "unit", ["1.", "1-", "1:", "1/", "1,", "$", "-", "a@", "a.", "①", "你1", "は1", "https://"]
)
def test_long_runs_of_marks_and_digits_are_bounded(unit: str) -> None:
    for segment in FRONT_END.segments((unit * 2000 + "b")[:4000]):
        assert min(len(segment), WordCounter().count(segment)) <= LONGEST + 1


@given(st.text(max_size=80), st.sampled_from(["auto", "zh", "en", "ja", "ko", "de"]))
def test_any_text_is_spoken_or_refused(text: str, language: str) -> None:
    for front_end in (FRONT_END, TOLD):
        with suppress(InvalidInput):
            segments = front_end.segments(text, language)
            assert segments
            assert all(segment.strip() for segment in segments)
