from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.text.normalise import Normaliser


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("これは3個です。100円（税込）・「10:30」", "これは三個です。百円（税込）・「十時三十分」"),
        ("2024年5月17日の14:05に1,500円を払う", "二千二十四年五月十七日の十四時五分に千五百円を払う"),
        ("気温は-5℃から20℃、湿度50%です", "気温はマイナス五度から二十度、湿度五十パーセントです"),
        ("電話は090-1234-5678です", "電話はゼロ九ゼロの一二三四の五六七八です"),
        ("〒100-0001", "郵便番号一ゼロゼロのゼロゼロゼロ一"),
        ("2〜3人、10%〜20%", "二から三人、十パーセントから二十パーセント"),
        ("版は1.2.3です", "版は一点二点三です"),
        ("https://www.example.jp/a を見て", "wwwドットexampleドットjpスラッシュa を見て"),
        ("bob2@example.jpへ", "bob二アットマークexampleドットjpへ"),
        ("１２：３０と①と½", "十二時三十分と一と二分の一"),
        ("iPhone 15を2台", "iPhone 十五を二台"),
    ],
)
def test_japanese_expression(normalise: Normaliser, text: str, spoken: str) -> None:
    assert normalise(text, "ja") == spoken


@given(st.text(alphabet="0123456789.,:-/%$¥年月日時個 はのカ〜abkm、。", max_size=40))
def test_any_japanese_text_loses_its_digits(text: str) -> None:
    spoken = Normaliser()("は" + text, "ja")
    assert not any(character in "0123456789" for character in spoken)
