"""Which reading a Chinese character gets, in sentences that name the right one in brackets behind it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from small_tokenizer import WordCounter

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families import COSYVOICE3
from cosyvoice_runtime.families.tokens import UNITS
from cosyvoice_runtime.text import polyphones
from cosyvoice_runtime.text.frontend import TextFrontEnd
from cosyvoice_runtime.text.markup import phonemes

SENTENCES = Path(__file__).with_name("polyphones.txt").read_text(encoding="utf-8").split()
MARKED = re.compile(r"(?P<character>.)\((?P<pinyin>\w+)\)")


def test_sentences_are_of_two_hundred_cases() -> None:
    cases = {MARKED.search(sentence).groups() for sentence in SENTENCES}  # type: ignore[union-attr]
    assert len(cases) >= 200


@pytest.mark.parametrize("sentence", SENTENCES)
def test_character_is_read_right(sentence: str) -> None:
    marked = MARKED.search(sentence)
    assert marked is not None
    text = MARKED.sub(r"\g<character>", sentence)
    found = {reading.index: reading.pinyin for reading in polyphones.readings(text)}
    assert found[marked.start()] == marked["pinyin"]


@pytest.mark.parametrize("text", ["事实证明了它", "代理发牌", "世界上游艇很多", "Hello, world 123!", ""])
def test_word_that_begins_inside_another_is_not_found(text: str) -> None:
    assert list(polyphones.readings(text)) == []


def test_every_reading_of_the_table_has_units() -> None:
    words, _ = polyphones._words()
    told = {reading.pinyin for found in words.values() for reading in found if not reading.is_usual}
    assert len(told) > 150
    for pinyin in told:
        parts = re.findall(r"\[\w+\]", phonemes.in_units(pinyin))
        assert set(parts) <= set(UNITS)
        assert "".join(parts) == phonemes.in_units(pinyin)


def test_no_word_has_two_readings_of_one_character() -> None:
    words, _ = polyphones._words()
    assert all(len({reading.index for reading in found}) == len(found) for found in words.values())


TOLD = TextFrontEnd(WordCounter(), family=COSYVOICE3, polyphones=True)


@pytest.mark.parametrize(
    ("text", "segment"),
    [
        ("我在银行存了3元。", "我在银[h][áng]存了三元。"),
        ("高管对报道[j][ǐ]予好评。", "高管对报道[j][ǐ]予好评。"),
        ("他很快乐。", "他很快乐。"),
        ("这是音乐。これは首都です。", "这是音[y][uè]。これは首都です。"),
        ("Hello there, you.", "Hello there, you."),
    ],
)
def test_speech_lm_is_told_the_readings_of_chinese_alone(text: str, segment: str) -> None:
    assert TOLD.segments(text) == [segment]


def test_what_is_told_does_not_change_where_a_text_is_split() -> None:
    text = "我在银行工作，他在首都听音乐。" * 30
    plain = TextFrontEnd(WordCounter(), family=COSYVOICE3).segments(text)
    assert len(plain) > 2
    assert TOLD.segments(text) == [polyphones.in_units(segment) for segment in plain]


def test_text_in_pieces_is_told_too() -> None:
    clauses = TOLD.clauses()
    text = "我在银行工作很多很多年了。然后去听音乐。"
    told = "我在银[h][áng]工作很多很多年了。然后去听音[y][uè]。"
    pushed = [clause for character in text for clause in clauses.push(character)] + clauses.flush()
    assert "".join(clause.text for clause in pushed) == told
    assert pushed[-1].characters == len(text)


def test_readings_are_not_told_unless_asked_for() -> None:
    assert TextFrontEnd(WordCounter(), family=COSYVOICE3).segments("我在银行。") == ["我在银行。"]


def test_a_family_without_units_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"polyphones.*cosyvoice2 reads no units"):
        TextFrontEnd(WordCounter(), polyphones=True)
