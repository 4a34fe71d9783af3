"""Chinese characters that are timed one by one, joined into words."""

from __future__ import annotations

import random
import sys

import pytest

from cosyvoice_client.captions import Captions
from cosyvoice_client.chinese_words import ChineseWords
from cosyvoice_client.errors import InvalidArgumentError
from cosyvoice_client.words import TimedWord
from cosyvoice_runtime.alignment.words import WordReader

TEXT = "我在北京大学学习， 买了3只猫 and an iPhone。南京市\n长江大桥"


def timed(text: str) -> list[TimedWord]:
    """The words and characters of a text, a second each."""
    reader = WordReader("plain")
    words = reader.read(text) + reader.finish()
    return [TimedWord(word.text, number, number + 0.9) for number, word in enumerate(words)]


def joined(text: str) -> list[str]:
    words = ChineseWords(text)
    return [word.text for word in words.push(timed(text)) + words.finish()]


def test_characters_are_words_of_the_dictionary_and_others_stay():
    assert joined(TEXT) == [
        *("我", "在", "北京大学", "学习", "，", "买", "了", "3", "只", "猫", "and", "an", "iPhone", "。"),
        *("南京市", "长江大桥"),
    ]


def test_word_lasts_from_its_first_character_to_its_last():
    words = ChineseWords("北京大学")
    assert words.push(timed("北京大学")) == [TimedWord("北京大学", 0, 3.9)]


@pytest.mark.parametrize("seed", range(20))
def test_words_are_the_same_however_characters_come(seed):
    chance, words, told = random.Random(seed), ChineseWords(TEXT), []
    left = timed(TEXT)
    while left:
        count = chance.randint(1, 5)
        told += words.push(left[:count])
        del left[:count]
    assert [word.text for word in told + words.finish()] == joined(TEXT)


def test_word_is_told_with_its_last_character():
    words = ChineseWords("北京大学学习")
    lengths = [len(words.push([character])) for character in timed("北京大学学习")]
    assert lengths == [0, 0, 0, 1, 0, 1]


def test_speech_that_ends_within_a_word_tells_what_was_spoken():
    words = ChineseWords("北京大学")
    assert words.push(timed("北京大学")[:2]) == []
    assert words.finish() == [TimedWord("北京", 0, 1.9)]


def test_japanese_stays_as_it_is():
    assert joined("東京大学で") == list("東京大学で")


def test_words_that_the_text_has_not_stay():
    words = ChineseWords("北京大学")
    assert [word.text for word in words.push(timed("上海北京大学"))] == ["上", "海", "北京大学"]


def test_missing_package_is_named_before_anything_is_spoken(monkeypatch):
    monkeypatch.setitem(sys.modules, "rjieba", None)
    with pytest.raises(InvalidArgumentError, match="rjieba"):
        Captions({}, str, "word")
