"""Texts of several languages: each clause is read in its own."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.text.language import runs
from cosyvoice_runtime.text.normalise import Normaliser

SENTENCES = [
    "我有3只猫。",
    "I have 3 cats. ",
    "これは3匹です。",
    "고양이 3 마리. ",
    "iPhone 15，",
    "3、",
    "(3)",
    "\n",
]


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("他说：“I have 3 dogs.”然后买了3只猫。", "他说：“I have three dogs。”然后买了三只猫。"),
        (
            "今天的meeting在10:30开始，please arrive at 10:15 on May 5, 2023",
            "今天的meeting在十点三十分开始，please arrive at ten fifteen on May fifth, twenty twenty three",
        ),
        ("iPhone 15 Pro，售价8999元", "iPhone十五Pro，售价八千九百九十九元"),
        (
            "会議は10:30から、料金は1,500円です。The fee is $15.50 for 3.",
            "会議は十時三十分から、料金は千五百円です。The fee is fifteen dollars and fifty cents for three.",
        ),
        ("これは3個です。这个是2个。It is 3.", "これは三個です。这个是两个。It is three."),
        (
            "한국어로 3개 있어요. I have 3 cats. 我有3只猫。これは3匹です。",
            "한국어로 세개 있어요. I have three cats. 我有三只猫。これは三匹です。",
        ),
        ("Das sind 3 Äpfel. I have 3 of the apples.", "Das sind drei Äpfel. I have three of the apples."),
        (
            "Привет, 3 кошки. Call me at 415-555-0199.",
            "Привет, три кошки. Call me at four one five, five five five, zero one nine nine.",
        ),
        (
            'Er sagte: "I have 3 dogs and 2 cats" und ging um 5 Uhr.',
            'Er sagte: "I have three dogs and two cats" und ging um fünf Uhr.',
        ),
        (
            "Sure! Here are 3 facts: Berlin hat 3 Millionen Einwohner.",
            "Sure! Here are three facts: Berlin hat drei Millionen Einwohner.",
        ),
        ("他说：Ich habe 3 Katzen。我有2只。", "他说：Ich habe drei Katzen。我有两只。"),
        ("Hij heeft 3 katten en 2 honden.", "Hij heeft 3 katten en 2 honden."),
        ("请call我at 13812345678。", "请call我at幺三八幺二三四五六七八。"),
        (
            "「東京タワー」は333mです。北京的温度是-5°C。",
            "「東京タワー」は三百三十三メートルです。北京的温度是负五摄氏度。",
        ),
        ("東京、大阪の2都市。東京2020。", "東京、大阪の二都市。東京二千二十。"),
    ],
)
def test_each_clause_is_read_in_its_language(normalise: Normaliser, text: str, spoken: str) -> None:
    assert normalise(text) == spoken


@pytest.mark.parametrize(
    ("tag", "text", "spoken"),
    [
        ("zh", "I have 3 of them", "I have three of them"),
        ("zh", "Samsung 3", "Samsung三"),
        ("en", "a café for 5，有3个", "a café for five，有三个"),
        ("de", "5 Hunde and the 3 cats，有3个", "fünf Hunde and the drei cats，有三个"),
    ],
)
def test_tag_holds_where_no_other_language_shows(
    normalise: Normaliser, tag: str, text: str, spoken: str
) -> None:
    assert normalise(text, tag) == spoken


@given(
    st.lists(st.sampled_from(SENTENCES), max_size=8).map("".join), st.sampled_from(["zh", "ja", "ko", "en"])
)
def test_runs_join_to_the_text(text: str, language: str) -> None:
    assert "".join(part for _, part in runs(text, language)) == text


@given(st.text(max_size=60))
def test_runs_of_any_text_join_to_it(text: str) -> None:
    assert "".join(part for _, part in runs(text, "zh")) == text


def test_a_language_without_normaliser_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    normalise = Normaliser()
    with caplog.at_level(logging.INFO):
        for text in ("Άδειο.", "Έχω 3 γάτες.", "Έχω 4 γάτες."):
            assert normalise(text) == text
    assert [record for record in caplog.messages if "no normaliser" in record] == [
        "numbers of text in und are left for the model to read: no normaliser"
    ]
