from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.text.normalise import Normaliser
from cosyvoice_runtime.text.reading.languages.english import ENGLISH, LONGEST


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (40, "forty"),
        (101, "one hundred and one"),
        (1999, "one thousand, nine hundred and ninety-nine"),
        (2005, "two thousand and five"),
        (1_000_000, "one million"),
        (1_000_100, "one million, one hundred"),
        (1_000_023_000, "one billion, twenty-three thousand"),
        (10**15 - 10**12, "nine hundred and ninety-nine trillion"),
    ],
)
def test_cardinal(number: int, words: str) -> None:
    assert ENGLISH.cardinal(str(number)) == words


@given(st.integers(0, 10**LONGEST - 1))
def test_cardinals_are_distinct_words(number: int) -> None:
    words, next_words = (ENGLISH.cardinal(str(each)) for each in (number, (number + 1) % 10**LONGEST))
    assert words.replace(", ", " ").replace("-", " ").replace(" ", "").isalpha()
    assert words != next_words


def test_whole_numbers_with_leading_zeros_and_very_long_ones_are_digits() -> None:
    assert ENGLISH.cardinal("007") == "zero zero seven"
    assert ENGLISH.cardinal("1" * 16) == " ".join(["one"] * 16)


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        (
            "It costs 1,000,000 dollars and 007 agents.",
            "It costs one million dollars and zero zero seven agents.",
        ),
        ("$45.50", "forty-five dollars and fifty cents"),
        ("$0.99 or $1.01", "ninety-nine cents or one dollar and one cent"),
        (
            "£1,234.5, ¥500, €1",
            "one thousand, two hundred and thirty-four point five pounds, five hundred yen, one euro",
        ),
        ("$5 million and $3bn", "five million dollars and three billion dollars"),
        ("45.50", "forty-five point five zero"),
        ("50% or 0.5 %", "fifty percent or zero point five percent"),
        ("In 1999 and 2024", "In nineteen ninety nine and twenty twenty four"),
        ("the 1990s, the '80s", "the nineteen nineties, the eighties"),
        ("the 2000s, 10s later", "the two thousands, ten seconds later"),
        ("1005 people", "one thousand and five people"),
        ("the 21st and 3rd-party", "the twenty first and third-party"),
        ("at 10:30 a.m. on 2024-05-17", "at ten thirty AM on the seventeenth of may twenty twenty four"),
        ("at 8 p.m. We left", "at eight PM. We left"),
        ("16:45", "sixteen forty five"),
        ("May 5, 2023", "May fifth, twenty twenty three"),
        ("call 415-555-0199", "call four one five, five five five, zero one nine nine"),
        ("call +1 415 555 0199", "call plus one, four one five, five five five, zero one nine nine"),
        ("555-1234", "five five five, one two three four"),
        ("5-10 people, 2019-2020", "five to ten people, twenty nineteen to twenty twenty"),
        ("-5 and #3 and No. 4, ~2", "minus five and number three and number four, about two"),
        ("1/2, 2 1/2, 24/7", "one half, two and a half, twenty-four seven"),
        ("5 m, 1 m, 9.8 m/s", "five meters, one meter, nine point eight meters per second"),
        (
            "1,000.5 km, 1 kg, 20°C",
            "one thousand point five kilometers, one kilogram, twenty degrees Celsius",
        ),
        (
            "v1.2.3 at 192.168.1.1",
            "v one point two point three at one nine two dot one six eight dot one dot one",
        ),
        ("MP3, GPT-4o, COVID-19", "MP three, GPT-four o, COVID-nineteen"),
        ("bob2@example.com", "bob two at example dot com"),
        ("2+2=4", "two plus two equals four"),
        ("1" * 20, " ".join(["one"] * 20)),
        (
            "ISBN 978-0-306-40615-7, ISBN 0-306-40615-X.",
            "ISBN nine seven eight, zero, three zero six, four zero six one five, seven, "
            "ISBN zero, three zero six, four zero six one five, X.",
        ),
        ("order #20240517-001", "order two zero two four zero five one seven, zero zero one"),
        ("flight BA2490, PIN 0042", "flight BA two four nine zero, PIN zero zero four two"),
        ("4111 1111 1111 1111", ", ".join(["four one one one"] + ["one one one one"] * 3)),
        ("call 911, call 112 people", "call nine one one, call one hundred and twelve people"),
        ("call +49 30 901820", "call plus four nine, three zero, nine zero one eight two zero"),
        ("1234567890 and 10000000000", "one two three four five six seven eight nine zero and ten billion"),
        (
            "17 May 2024, 17.05.2024",
            "the seventeenth of May twenty twenty four, the seventeenth of may twenty twenty four",
        ),
        ("8:30-17:00, 9am-5pm", "eight thirty to seventeen hundred, nine AM to five PM"),
        ("16:9, 3:2", "sixteen to nine, three to two"),
        (
            "5-3=2, 6/2=3, y=-5",
            "five minus three equals two, six divided by two equals three, y equals minus five",
        ),
        ("5%-10%, Page 12-15, x", "five percent to ten percent, Page twelve to fifteen, x"),
        ("10 cm × 5 cm", "ten centimeters by five centimeters"),
        ("Exam-2, team - 3", "Exam-two, team - three"),
        ("3-2-1, 2010 2011 2012", "three, two, one, twenty ten twenty eleven twenty twelve"),
        ("order 10000 units", "order ten thousand units"),
        ("Chapter 3 March, 9/11", "Chapter three March, nine eleven"),
        ("1998/99", "nineteen ninety eight to ninety-nine"),
        ("$5-10, $5-$10 million", "five to ten dollars, five to ten million dollars"),
        (
            "1.5-2 hours, 0.5–0.75, 1-1.5",
            "one point five to two hours, zero point five to zero point seven five, one to one point five",
        ),
        ("1.5-2kg, 5-10cm, 3-4th", "one point five to two kilograms, five to ten centimeters, three-fourth"),
        ("1,000-2,000 people", "one thousand to two thousand people"),
        ("US$5, A$20 and HK$30", "five US dollars, twenty Australian dollars and thirty Hong Kong dollars"),
        ("C$1, NZ$2.50", "one Canadian dollar, two New Zealand dollars and fifty cents"),
        ("S$5-10, US$5-US$10 million", "five to ten Singapore dollars, five to ten million US dollars"),
        (
            "-$5, about -€3.50, ~$5",
            "minus five dollars, about minus three euros and fifty cents, about five dollars",
        ),
        ("-$5-10, −US$5 or −5", "minus five to ten dollars, minus five US dollars or minus five"),
        ("-20 EUR, -USD 5, ~5€", "minus twenty euros, minus five US dollars, about five euros"),
        ("$5 -$10, a-$5", "five to ten dollars, a-five dollars"),
        ("R$5, R$1.50, NT$5", "five reais, one real and fifty centavos, five New Taiwan dollars"),
        ("MX$5, only$5, $5off", "MX five dollars, only five dollars, five dollars off"),
        ("50%off, 50%-off", "fifty percent off, fifty percent-off"),
        ("1/2/3, 1/2/23", "one two three, one two twenty-three"),
        ("add ½ cup, 2 ½", "add one half cup, two and a half"),
        ("$.50, $.5 million", "fifty cents, point five million dollars"),
        ("24:00, 0:00, 24:00:00", "twenty four hundred, zero hundred, twenty four hundred"),
        ("5€, 20 EUR, USD 50", "five euros, twenty euros, fifty US dollars"),
        ("3cm x 5cm, 3 × 5", "three centimeters by five centimeters, three times five"),
        ("10^6, x^2, x=3", "ten to the power of six, x squared, x equals three"),
        ("≈5, ≤5, ±5, 50+", "about five, at most five, plus or minus five, fifty plus"),
        ("HTTP/2, 5'10\"", "HTTP two, five foot ten"),
        ("½ cup, 2½, №5, ① ②b", "one half cup, two and a half, number five, one two b"),
        ("https://example.com/a/ or example.com.", "example dot com slash a or example dot com."),
    ],
)
def test_english_expression(normalise: Normaliser, text: str, spoken: str) -> None:
    assert normalise(text, "en") == spoken


@pytest.mark.parametrize("count", [16, 5000])
def test_dollars_beyond_a_cardinal_are_read_digit_by_digit(normalise: Normaliser, count: int) -> None:
    ones = " ".join(["one"] * count)
    assert normalise("$" + "1" * count + ".50", "en") == f"{ones} dollars and fifty cents"
    assert normalise("$" + "0" * count + "1.00", "en") == "one dollar"


@pytest.mark.parametrize(
    "text",
    [
        "No. I won't.",
        'He said "Stop!" \\ and {left} &b @ *',
        "Dr. Smith of the U.S.A.",
        "two  spaces – and “quotes” 👍",
    ],
)
def test_text_without_numbers_is_untouched(normalise: Normaliser, text: str) -> None:
    assert normalise(text) == text


@given(st.text(alphabet=[chr(c) for c in range(32, 127)] + list("€£¥°²×–’“”…"), max_size=40))
def test_any_ascii_text_loses_its_digits(text: str) -> None:
    spoken = Normaliser()(text, "en")
    assert "<|" in text or not any(character in "0123456789" for character in spoken)
    assert Normaliser()(spoken, "en") == spoken
