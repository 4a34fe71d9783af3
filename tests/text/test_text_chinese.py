from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.text import chinese
from cosyvoice_runtime.text.normalise import Normaliser

pytest.importorskip("wetext")


@pytest.fixture(scope="module")
def normalise() -> Normaliser:
    return Normaliser()


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("今天气温是 25 度，湿度 60%。", "今天气温是二十五度，湿度百分之六十。"),
        ("这是3.14，45.50", "这是三点一四，四十五点五零"),
        ("总共1,000,000元", "总共一百万元"),
        ("价格$45.50和￥3万和¥100元", "价格四十五点五美元和三万元和一百元"),
        ("$1,234.56吗", "一千二百三十四点五六美元吗"),
        (
            "2024年5月17日，在2024-05-17 10:30开会",
            "二零二四年五月十七日，在二零二四年五月十七日十点三十分开会",
        ),
        ("2023-2024赛季", "二零二三到二零二四赛季"),
        ("电话13812345678", "电话幺三八幺二三四五六七八"),
        ("电话+86 138 1234 5678", "电话八六幺三八幺二三四五六七八"),
        ("电话010-12345678", "电话零一零一二三四五六七八"),
        ("007特工", "零零七特工"),
        ("第1名第2季，2只猫", "第一名第二季，两只猫"),
        ("3~5个，100-200元", "三到五个，一百到两百元"),
        ("版本1.2.3", "版本一点二点三"),
        ("身份证110101199003071234", "身份证一一零一零一一九九零零三零七一二三四"),
        ("F-16战机", "F十六战机"),
        ("面积10 m²和5㎡", "面积十平方米和五平方米"),
        ("５０％的人", "百分之五十的人"),
        ('他说：“3个\\"4"”', '他说：“三个\\"四"”'),
        ("网址www.163.com。", "网址www点一六三点com。"),
        ("U.S.A. 和 a.m.", "U.S.A。和a.m。"),
        ("你好[laughter]3个<strong>5</strong>", "你好[laughter]三个<strong>五</strong>"),
    ],
)
def test_chinese_expression(normalise: Normaliser, text: str, spoken: str) -> None:
    assert normalise(text) == spoken


@pytest.mark.parametrize(
    ("text", "expected"), [("a b 中 文 c d", "a b中文c d"), ("a  b", "ab"), ("中 ", "中"), (" 中", "中")]
)
def test_blank_survives_only_between_ascii(text: str, expected: str) -> None:
    assert chinese.drop_blanks(text) == expected


def test_blank_before_the_next_part_survives_if_that_is_ascii() -> None:
    assert chinese.drop_blanks("a ", following="b") == "a "
    assert chinese.drop_blanks("a ", following="中") == "a"


@given(st.text(alphabet="0123456789.,:-/%$￥年月日点个 中文abKm²，。", max_size=40))
def test_any_chinese_text_loses_its_digits(text: str) -> None:
    text = "中" + text
    spoken = Normaliser()(text)
    assert not any(character in "0123456789" for character in spoken)


@given(st.text(alphabet="0123456789,-/%$￥年月日点个 中文abKm²，。", max_size=40))
def test_normalising_again_only_drops_spaces(text: str) -> None:
    spoken = Normaliser()("中" + text)
    assert Normaliser()(spoken).replace(" ", "") == spoken.replace(" ", "")
