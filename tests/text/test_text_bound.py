from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.families.tokens import SPECIAL_TOKENS
from cosyvoice_runtime.text.split import bounded
from cosyvoice_runtime.text.tokenizer import TextTokenizer
from cosyvoice_runtime.text.validate import SPECIAL

UNITS = st.one_of(
    st.sampled_from([*SPECIAL_TOKENS, "👍🏽", "👨‍👩‍👧", "🇩🇪", "e\u0301\u0302", "你", "word ", "，"]),
    st.characters(),
)
TEXTS = st.lists(UNITS, max_size=60).map("".join)


@given(text=TEXTS, limit=st.integers(1, 40))
def test_parts_join_to_the_text(text: str, limit: int) -> None:
    assert "".join(bounded(text, limit, len)) == text


@given(text=st.text(alphabet="ab你，, 。", max_size=300), limit=st.integers(1, 40))
def test_no_part_exceeds_the_limit(text: str, limit: int) -> None:
    assert all(len(part) <= limit for part in bounded(text, limit, len))


def test_no_part_exceeds_the_token_limit(tokenizer: TextTokenizer) -> None:
    text = "the quick 狐狸 jumps 안녕 over" * 40
    assert all(tokenizer.count(part) <= 25 for part in bounded(text, 25, tokenizer.count))


@given(text=TEXTS, limit=st.integers(1, 40))
def test_cuts_respect_tokens_and_combining_characters(text: str, limit: int) -> None:
    parts = list(bounded(text, limit, len))
    assert sum(len(SPECIAL.findall(part)) for part in parts) == len(SPECIAL.findall(text))
    for part in parts[1:]:
        assert unicodedata.category(part[0])[0] != "M"
        assert part[0] != "\u200d"


@pytest.mark.parametrize(
    "unit", ["👍🏽", "👨‍👩‍👧", "🇩🇪", "e\u0301\u0302", "<|endofprompt|>", "[vocalized-noise]"]
)
def test_a_unit_longer_than_the_limit_stays_whole(unit: str) -> None:
    assert list(bounded(unit * 3, 1, len)) == [unit] * 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("一二三四，五六七八九十", ["一二三四，", "五六七八九十"]),
        ("one two three four", ["one two ", "three ", "four"]),
        ("abcdefghijkl", ["abcdefgh", "ijkl"]),
        ("a, bcdefghijk", ["a, bcdef", "ghijk"]),
        ("abcd. e f", ["abcd. ", "e f"]),
    ],
)
def test_cut_prefers_a_late_pause_then_a_space(text: str, expected: list[str]) -> None:
    assert list(bounded(text, 8, len)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ab cd 1,234.5", ["ab cd", " 1,234.5"]),
        ("ab cd 12.5 %", ["ab cd", " 12.5 %"]),
        ("ab cdef 3 000", ["ab cdef", " 3 000"]),
        ("ab cd １２：３０", ["ab cd", " １２：３０"]),
        ("一共卖出的价是五百万", ["一共卖出的价", "是五百万"]),
        ("这里一共有$1.5亿", ["这里一共有", "$1.5亿"]),
        ("12345678901", ["12345678", "901"]),
        ("12 45 78 90", ["12 45 ", "78 90"]),
    ],
)
def test_cut_falls_inside_a_number_only_where_there_is_no_other_place(text: str, expected: list[str]) -> None:
    assert list(bounded(text, 8, len)) == expected


@given(text=st.text(alphabet="ab 3,.你，五", max_size=120), following=st.text(max_size=20))
def test_a_cut_stays_where_it_is_when_more_text_comes(text: str, following: str) -> None:
    parts = list(bounded(text, 8, len))
    if len(parts) > 1:
        assert next(bounded(text + following, 8, len)) == parts[0]
