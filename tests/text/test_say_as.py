"""Words of a kind that is told are spoken as that kind, in ten languages."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.text.reading.languages.known import language_of
from cosyvoice_runtime.text.reading.languages.language import Language
from cosyvoice_runtime.text.reading.say_as import said_as

LANGUAGES = ("en", "zh", "ja", "ko", "de", "fr", "es", "it", "pt", "ru")
CASES = """
en characters    ABC => A B C
en characters    a-1.b@c_d 007 => A dash one dot B at C underscore D, zero zero seven
en verbatim      Zoë => Z O Ë
en spell-out     O'Hara $5 => O H A R A, dollar five
en characters    straße => S T R A ß E
zh characters    A1-23B => A 一杠二三 B
zh characters    京A·12 => 京 A 一二
zh spell-out     你好 vip => 你好，V I P
ja characters    AB-0 => A B ハイフンゼロ
ko characters    x_9 => X 언더바 구
de characters    c@d => C at D
fr characters    été2 => É T É deux
es characters    a.b => A punto B
it characters    w3 => W tre
pt characters    x.y => X ponto Y
ru characters    а1я => А один Я
en digits        0123 45 => zero one two three, four five
zh digits        110 => 一一零
ja digits        907 => 九ゼロ七
ko digits        12-34 => 일이, 삼사
fr digits        4711 => quatre sept un un
en cardinal      1,250.5 => one thousand, two hundred and fifty point five
en cardinal      007 => seven
en number        -12 => minus twelve
en cardinal      XIV => fourteen
zh cardinal      200 => 两百
ja cardinal      1250 => 千二百五十
de cardinal      1.250,5 => ein tausend zwei hundert fünfzig Komma fünf
fr cardinal      1 250 => mille deux cent cinquante
es cardinal      +3 => más tres
ru cardinal      １２ => двенадцать
en ordinal       3 => third
en ordinal       22nd => twenty second
es ordinal       3ª => tercera
en ordinal       IX => ninth
zh ordinal       第3 => 第三
ja ordinal       3番目 => 第三
ko ordinal       1 => 첫번째
de ordinal       3. => dritter
fr ordinal       1er => premier
es ordinal       3º => tercero
it ordinal       11 => undicesimo
pt ordinal       21 => vigésimo primeiro
ru ordinal       5-й => пятый
en fraction      3/4 => three quarters
en fraction      1½ => one and a half
en fraction      1 + 2/3 => one and two thirds
zh fraction      7/10 => 十分之七
ja fraction      1/2 => 二分の一
ko fraction      1 1/2 => 일과 이분의 일
de fraction      2/3 => zwei drittel
ru fraction      1/2 => одна вторая
en unit          5-10 km => five to ten kilometers
en unit          10 foot => ten foot
en unit          6'2" => six foot two
zh unit          20℃ => 二十摄氏度
ja unit          10km/h => 十キロメートル毎時
ko unit          5% => 오 퍼센트
es unit          2 kg => dos kilogramos
fr unit          2h30m => deux heures trente minutes
en date          2024-05-17 => the seventeenth of may twenty twenty four
en date          May 5, 2023 => May fifth, twenty twenty three
en date dmy      3/4/2024 => the third of april twenty twenty four
en date mdy      3/4/24 => march fourth twenty twenty four
en date mm/dd/yyyy 03/04/1999 => march fourth nineteen ninety nine
en date yyyymmdd 20240517 => the seventeenth of may twenty twenty four
en date dm       17th of May => the seventeenth of may
en date my       5/2024 => may twenty twenty four
en date d        3 => third
en date m        12 => december
en date y        1905 => nineteen oh five
zh date          2024年5月17日 => 二零二四年五月十七日
zh date md       5/17 => 五月十七日
zh date y        2024 => 二零二四年
ja date ymd      2024/5/17 => 二千二十四年五月十七日
ja date          5月3日 => 五月三日
ko date d        3 => 삼일
ko date          2024년 6월 1일 => 이천이십사년 유월 일일
de date dmy      3.4.2024 => dritter April zwei tausend vier und zwanzig
fr date md       5/1 => premier mai
es date          5 de mayo de 2024 => cinco de mayo de dos mil veinticuatro
it date ym       2024-05 => maggio duemila ventiquattro
pt date dm       17/5 => dezessete de maio
ru date          2024-05-17 => семнадцатого мая две тысячи двадцать четвёртого года
en time          14:30 => fourteen thirty
en time hms12    2:30 p.m. => two thirty PM
en time hms24    0815 => eight fifteen
en time          2h30m => two hours, thirty minutes
zh time hms12    2:30pm => 下午两点三十分
zh time          9点半 => 九点半
ja time          9時30分 => 九時三十分
ko time          2h30m => 두시간 삼십분
ko time hms12    3:15 PM => 오후 세시 십오분
de time          14:30 => vierzehn Uhr dreißig
de time          14 Uhr 30 => vierzehn Uhr dreißig
de time hms12    2:30 pm => vierzehn Uhr dreißig
fr time          14h30 => quatorze heures trente
ru time          45s => сорок пять секунд
en telephone     +1 415 555 0199 => plus one, four one five, five five five, zero one nine nine
en telephone     1-800-FLOWERS => one, eight hundred, FLOWERS
zh telephone     13812345678 => 幺三八幺二三四五六七八
ja telephone     03-1234-5678 => ゼロ三の一二三四の五六七八
ko telephone     010-1234-5678 => 공일공, 일이삼사, 오육칠팔
de telephone     (030) 123 45 => null drei null, eins zwei drei, vier fünf
fr telephone     01 23 45 => zéro un, vingt-trois, quarante-cinq
en currency      $5.20 => five dollars and twenty cents
en currency      5.20 USD => five US dollars and twenty cents
en currency eur  12 => twelve euros
en currency      5 dollars => five dollars
zh currency      ¥2 => 两元
ja currency      ￥500 => 五百円
de currency      12,50 € => zwölf Euro fünfzig Cent
ru currency      5 USD => пять долларов
en address       221 Baker St => two twenty-one Baker Street
"""
LINE = re.compile(r"(\w\w) ([a-z-]+)(?: (\S+)) +(.+) => (.+)")
FORMS = ("dmy", "mdy", "mm/dd/yyyy", "yyyymmdd", "ymd", "dm", "md", "my", "ym", "d", "m", "y", "hms12",
         "hms24", "eur")  # fmt: skip


def cases() -> list[tuple[str, str, str, str, str]]:
    """Language, kind, form, words and what is spoken."""
    found = []
    for line in CASES.strip().splitlines():
        written, said = line.split(" => ")
        language, kind, words = written.split(maxsplit=2)
        first, _, rest = words.partition(" ")
        form, words = (first, rest.strip()) if first in FORMS and rest else ("", words)
        found.append((language, kind, form, words, said))
    return found


def language(tag: str) -> Language:
    found = language_of(tag)
    assert found is not None
    return found


@pytest.mark.parametrize(("tag", "kind", "form", "words", "said"), cases())
def test_words_are_spoken_as_their_kind(tag: str, kind: str, form: str, words: str, said: str) -> None:
    assert said_as(words, kind, form, language(tag)) == said


def test_there_are_cases_of_every_language() -> None:
    assert len(cases()) >= 100
    assert {case[0] for case in cases()} == set(LANGUAGES)


@pytest.mark.parametrize(
    ("kind", "form", "words", "message"),
    [
        ("expletive", "", "darn", r"'expletive' is not .*; interpret-as: one of characters, .*telephone"),
        ("date", "", "abc", r"'abc' is not accepted; interpret-as=date: .*2024-05-17"),
        ("date", "dmy", "31/2/2024", r"'31/2/2024' .*interpret-as=date: a date in the order dmy"),
        ("date", "dmy", "1/2", r"the order dmy"),
        ("date", "wmd", "1/2", r"'wmd' is not accepted; format of a date: one of mdy, dmy"),
        ("time", "", "25:00", r"interpret-as=time: a time such as 14:30"),
        ("time", "hms12", "14:30", r"interpret-as=time: .*from 1 to 12"),
        ("time", "hm", "14:30", r"'hm' is not accepted; format of a time: one of hms12, hms24"),
        ("digits", "", "12a", r"interpret-as=digits"),
        ("cardinal", "", "ten", r"interpret-as=cardinal"),
        ("ordinal", "", "0", r"interpret-as=ordinal"),
        ("fraction", "", "1/0", r"interpret-as=fraction"),
        ("unit", "", "km", r"interpret-as=unit"),
        ("telephone", "", "call me", r"interpret-as=telephone"),
        ("currency", "", "5", r"interpret-as=currency"),
        ("characters", "", "a¶b", r"'a¶b' .*interpret-as=characters: letters, digits and signs"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("tag", LANGUAGES)
def test_what_is_nothing_of_its_kind_is_invalid_input(
    tag: str, kind: str, form: str, words: str, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        said_as(words, kind, form, language(tag))


@pytest.mark.parametrize("tag", LANGUAGES)
def test_no_words_are_spoken_as_none(tag: str) -> None:
    assert said_as("  ", "Date", "dmy", language(tag)) == ""


@given(
    st.sampled_from(LANGUAGES),
    st.sampled_from(("characters", "digits", "cardinal", "ordinal", "fraction", "unit", "date", "time",
                     "telephone", "currency")),
    st.sampled_from(("", *FORMS)),
    st.text("0123456789 ./:-+,$€%kmhsAPMX年月日點", max_size=16),
)  # fmt: skip
def test_no_digit_is_left_and_no_other_error_is_raised(tag: str, kind: str, form: str, words: str) -> None:
    try:
        said = said_as(words, kind, form, language(tag))
    except InvalidInput:
        return
    assert not re.search("[0-9]", said)
