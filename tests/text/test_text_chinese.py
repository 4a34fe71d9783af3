from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.text import chinese
from cosyvoice_runtime.text.normalise import Normaliser


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
        ("10点-12点，9点-11点半，9点30分~10点", "十点到十二点，九点到十一点半，九点三十分到十点"),
        ("2点-4点，0点-5度", "两点到四点，零点负五度"),
        ("500mL和250 mL", "五百毫升和二百五十毫升"),
        ("1990后，15分钟后", "一九九零后，十五分钟后"),
        ("95后，90后，80、95后和00后", "九五后，九零后，八零、九五后和零零后"),
        ("2023-2024赛季", "二零二三到二零二四赛季"),
        ("电话13812345678", "电话幺三八幺二三四五六七八"),
        ("电话+86 138 1234 5678", "电话八六幺三八幺二三四五六七八"),
        ("电话010-12345678", "电话零幺零幺二三四五六七八"),
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
        (
            "书号ISBN 978-7-115-54608-1，书号9787115546081",
            "书号ISBN九七八七一一五五四六零八一，书号九七八七一一五五四六零八一",
        ),
        ("电话：(010) 8765-4321", "电话：零幺零八七六五四三二幺"),
        ("电话+1 415 555 0199", "电话加幺四幺五五五五零幺九九"),
        ("客服电话400-820-8820，热线95588", "客服电话四零零八二零八八二零，热线九五五八八"),
        ("我的QQ是123456789，验证码：8016", "我的QQ是一二三四五六七八九，验证码：八零一六"),
        ("房间号1203，航班CA1234", "房间号幺二零三，航班CA幺二三四"),
        ("C919飞机、H100显卡和G1234次", "C九一九飞机、H一百显卡和G幺二三四次"),
        ("京A12345和沪B·88888", "京A幺二三四五和沪B·八八八八八"),
        (
            "2024.05.17和05/17/2024和17/05/2024",
            "二零二四年五月十七日和二零二四年五月十七日和二零二四年五月十七日",
        ),
        ("1月2日2点30分，2年前", "一月二日两点三十分，两年前"),
        ("'98年，80、90后", "九八年，八零、九零后"),
        ("3-0领先，比分2:1", "三比零领先，比分二比一"),
        ("3—5天，50%-60%", "三到五天，百分之五十到百分之六十"),
        ("时速120km/h，7×24小时", "时速一百二十公里，七乘二十四小时"),
        ("3*4=12，6÷2=3，10^6，x^2", "三乘四等于十二，六除以二等于三，十的六次方，x的二次方"),
        ("3-5%，-10%，约1/3", "百分之三到五，负百分之十，约三分之一"),
        ("代码2000行，密码1234错误", "代码两千行，密码一二三四错误"),
        ("手机1999起，价格USD1500", "手机一千九百九十九起，价格一千五百美元"),
        ("T1000和A380，RTX4090", "T一千和A三八零，RTX四零九零"),
        ("2号楼2层2单元，C++17", "二号楼二层二单元，C++十七"),
        ("0.5‰，3¾杯，½", "千分之零点五，三又四分之三杯，二分之一"),
        ("220V、50Hz、5kWh、100mAh、30dB", "二百二十伏、五十赫兹、五千瓦时、一百毫安时、三十分贝"),
        ("A座2层B2层，中国No.1", "A座二层B二层，中国第一"),
        ("邮箱zhang_san88@qq.com", "邮箱zhang下划线san八八艾特qq点com"),
        ("https://www.example.com/a?b=1", "www点example点com斜杠a问号b等于一"),
        ("12:30分开始，2:05分到，10:30-11:30分", "十二点三十分开始，两点零五分到，十点三十分到十一点三十分"),
        ("比分12:30分出，时长5:30分钟", "比分十二比三十分出，时长五分三十秒"),
        ("价格1，000，合1，234，000人", "价格一千，合一百二十三万四千人"),
        ("100，200，300元", "一百，两百，三百元"),
        ("①苹果，Ⅲ期，１２：３０，1㎞", "一，苹果，三期，十二点三十分，一公里"),
    ],
)
def test_chinese_expression(normalise: Normaliser, text: str, spoken: str) -> None:
    assert normalise(text, "zh") == spoken


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b 中 文 c d", "a b中文c d"),
        ("a  b", "ab"),
        ("中 ", "中"),
        (" 中", "中"),
        ("3 Äpfel 中", "3 Äpfel中"),
    ],
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
