from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_tokenizer import WordCounter

from cosyvoice_runtime.text.split import (
    CHINESE,
    WESTERN,
    WITH_ORDINALS,
    SplitLimits,
    SplitStyle,
    complete,
    sentences,
    split,
)

COUNT = WordCounter().count
TEXTS = st.text(alphabet='ab 3中文。，、.,?!;:："”\n', min_size=1, max_size=120)
LIMITS = st.builds(
    SplitLimits,
    maximum=st.integers(0, 30),
    minimum=st.integers(0, 20),
    merge=st.integers(0, 8),
    hard=st.integers(5, 40),
)
WITH_COMMAS = replace(CHINESE, marks=CHINESE.marks + "，,")
STYLES = st.sampled_from([CHINESE, WESTERN, WITH_COMMAS, WITH_ORDINALS, replace(WESTERN, keep_words=False)])


def spoken(text: str, style: SplitStyle) -> str:
    """A text without marks, quotes and whitespace."""
    return "".join(c for c in text if c not in style.marks and c not in '"”' and not c.isspace())


@given(text=TEXTS, style=STYLES, limits=LIMITS)
def test_split_loses_only_marks_and_whitespace(text: str, style: SplitStyle, limits: SplitLimits) -> None:
    assert spoken("".join(split(text, style, limits, len)), style) == spoken(text, style)


@given(text=TEXTS, style=STYLES, limits=LIMITS, count=st.sampled_from([len, COUNT]))
def test_no_segment_exceeds_the_bound(text: str, style: SplitStyle, limits: SplitLimits, count) -> None:
    assert limits.longest is not None
    assert all(count(segment) <= limits.longest for segment in split(text, style, limits, count))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("你好。再见", ["你好。", "再见。"]),
        ("他说：“好。”走了！", ["他说：", "“好。”", "走了！"]),
        ("。。。你好。。。", ["你好。"]),
        ("3.14 和 10:30。", ["3.14 和 10:30。"]),
        ("比分：3：2，１２：３０、１２:３０到", ["比分：", "3：2，１２：３０、", "１２:３０到。"]),
        ("第1：一和a：b", ["第1：", "一和a：", "b。"]),
        ("！”你好", ["”你好。"]),
        ("ab！cd", ["ab！", "cd。"]),
        ("", []),
    ],
)
def test_chinese_sentences(text: str, expected: list[str]) -> None:
    assert list(sentences(complete(text, CHINESE), CHINESE)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"Stop!" he said', ['"Stop!"', " he said."]),
        (
            "Dr. Smith paid 3.50 at 10:30 a.m. on Jan. 5. Why?",
            ["Dr. Smith paid 3.50 at 10:30 a.m. on Jan. 5.", " Why?"],
        ),
        ("I said no. 5 of us left at 5 p.m. Then", ["I said no. 5 of us left at 5 p.m.", " Then."]),
        ("I said no. Go", ["I said no.", " Go."]),
        ("Wait. approx. 5", ["Wait.", " approx. 5."]),
        ("one, two", ["one, two."]),
        ("J. K. Rowling and John F. Kennedy. Yes", ["J. K. Rowling and John F. Kennedy.", " Yes."]),
        ("the U.S. economy. Ph.D. students", ["the U.S. economy.", " Ph.D. students."]),
        ("Gov. Smith Jr. is at Apple Inc. now", ["Gov. Smith Jr. is at Apple Inc. now."]),
        ("He is at Apple Inc. She left etc. Yes", ["He is at Apple Inc.", " She left etc.", " Yes."]),
        ("See p. 5, pp. 6 and ch. five. Go", ["See p. 5, pp. 6 and ch. five.", " Go."]),
        ("Wait a sec. Go to sec. 5.", ["Wait a sec.", " Go to sec. 5."]),
        ("you and I. We met Dr.\nX", ["you and I.", " We met Dr.\nX."]),
        ("plan B. Then we", ["plan B. Then we."]),
        ("he is 12. 3 of us. all small", ["he is 12.", " 3 of us.", " all small."]),
        ("5 P.M. Then. the 21st. Then", ["5 P.M.", " Then.", " the 21st.", " Then."]),
    ],
)
def test_western_sentences(text: str, expected: list[str]) -> None:
    assert list(sentences(complete(text, WESTERN), WESTERN)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Am 3. Oktober z. B. Nr. 5 auf Platz 2. Gut", ["Am 3. Oktober z. B. Nr. 5 auf Platz 2. Gut."]),
        ("Er kam bzw. Sie. Dann", ["Er kam bzw. Sie.", " Dann."]),
        ("Im Jahr 1999. Dann. Siehe Abb. 3", ["Im Jahr 1999.", " Dann.", " Siehe Abb. 3."]),
        ("Es kostet 3.50. Gut", ["Es kostet 3.50.", " Gut."]),
        ("Voici M. Dupont, env. deux. Oui", ["Voici M. Dupont, env. deux.", " Oui."]),
        ("La Sra. Ruiz. Sí", ["La Sra. Ruiz.", " Sí."]),
        ("Это А. С. Пушкин. Это я. Да", ["Это А. С. Пушкин.", " Это я.", " Да."]),
        ("네. 3개요. 그래", ["네.", " 3개요.", " 그래."]),
    ],
)
def test_sentences_of_languages_that_write_dots_after_ordinals(text: str, expected: list[str]) -> None:
    assert list(sentences(complete(text, WITH_ORDINALS), WITH_ORDINALS)) == expected


def test_upstream_style_splits_inside_words() -> None:
    style = replace(WESTERN, keep_words=False)
    assert list(sentences("3.14 Dr. X.", style)) == ["3.", "14 Dr.", " X."]


def test_commas_split_only_when_asked() -> None:
    assert list(sentences("一，二。", CHINESE)) == ["一，二。"]
    assert list(sentences("一，二。", WITH_COMMAS)) == ["一，", "二。"]


def test_short_last_segment_joins_the_one_before() -> None:
    limits = SplitLimits(maximum=10, minimum=5, merge=4)
    assert split("一二三四五六七八。一二。", CHINESE, limits, len) == ["一二三四五六七八。一二。"]
    assert split("一二三四五六七八。一二三。", CHINESE, limits, len) == ["一二三四五六七八。", "一二三。"]
