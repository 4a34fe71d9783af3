"""Languages by the names that people and clients give them."""

from __future__ import annotations

import re

import pytest

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.language_names import NAMES, language_tag
from cosyvoice_runtime.text.language import TaggedText, resolve

LINES = [line.split() for line in NAMES.strip().splitlines()]
SAME = [
    (["auto", "Auto", "AUTO", "", " ", "und", "Automatic", "auto-detect", "Multilingual"], "auto"),
    (["en", "English", "english", "ENGLISH", " English ", "eng", "英语"], "en"),
    (["en-US", "en_US", "en_US.UTF-8", "English-US", "English (US)", "eng_US"], "en-US"),
    (["zh", "Chinese", "Mandarin", "chi", "zho", "cmn", "cn", "中文", "普通话"], "zh"),
    (["pt-BR", "pt_BR", "Portuguese-BR", "por_BR"], "pt-BR"),
    (["zh-CN", "zh_CN", "zho-CN", "cn_CN"], "zh-CN"),
    (["zh-Hans", "Simplified Chinese", "Chinese (Simplified)"], "zh-Hans"),
    (["yue", "Cantonese", "粤语"], "yue"),
    (["ja", "Japanese", "jpn", "jp", "日本語"], "ja"),
    (["ko", "Korean", "kor", "kr", "한국어"], "ko"),
    (["de", "German", "Deutsch", "deu", "ger"], "de"),
    (["es", "Spanish", "Español", "ESPAÑOL"], "es"),
]


@pytest.mark.parametrize(("names", "tag"), SAME, ids=[tag for _, tag in SAME])
def test_names_of_one_language_are_one_tag(names, tag):
    assert {name: language_tag(name) for name in names} == dict.fromkeys(names, tag)


@pytest.mark.parametrize("tag", ["en", "zh-Hant-TW", "xx", "de-1996", "EN-gb"])
def test_tag_stays_as_it_is(tag):
    assert language_tag(tag) == tag


@pytest.mark.parametrize("name", ["Klingon", "e", "123", ".", "-", "(", "auto-US", "en/US", "null"])
def test_what_is_no_language_is_refused_by_name(name):
    with pytest.raises(InvalidInput, match=r"^language: .*a name such as English") as caught:
        resolve("Hello.", name)
    assert caught.value.field == "language"


def test_table_has_each_name_once_and_in_the_form_that_is_looked_for():
    names = [name for line in LINES for name in line]
    assert len(names) == len(set(names))
    assert [name for _, *names in LINES for name in names if name != name.casefold()] == []
    assert [tag for tag, *_ in LINES if not re.fullmatch("[a-z]{2,3}(-Han[st])?", tag)] == []


def test_text_is_read_in_the_language_by_any_name():
    assert resolve("12", "Chinese (Simplified)") == resolve("12", "zh_CN") == "zh"
    assert resolve("你好", "AUTO") == "zh"
    assert TaggedText("<|yue|>", "你好").language("Auto") == "yue"
