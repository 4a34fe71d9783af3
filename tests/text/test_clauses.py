from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_tokenizer import WordCounter

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.text.clauses import Clause, ClauseStream
from cosyvoice_runtime.text.frontend import TextFrontEnd
from cosyvoice_runtime.text.split import SplitLimits

SHORT = SplitLimits(maximum=12, minimum=6, merge=3, hard=20)
SENTENCES = {
    "en": [
        "I have 2 cats. ",
        "Dr. Smith paid $45.50 at 10:30 a.m. on Jan. 5. ",
        'He said "Stop!" and left; ',
        "Why? ",
        "\n",
        "Wait... ",
        "v1.2 is (not) out! ",
        "Room 4B. ",
        "J. K. Rowling of the U.S. saw p. 5 etc. ",
        "5 P.M. ",
        "A sec. ",
        "sec. 3\n",
    ],
    "zh": [
        "今天25度，湿度 60%。",
        "他说：“好！”走了；",
        "价格是$45.50吗？",
        "iPhone 15 is out. ",
        "你好、",
        "\n",
        "（注）a - b. ",
        "www.163.com！",
        "１２：３０开会：比分3：2，",
    ],
    "ja": ["元気ですか？", "３個です。", "はい、", "１２:３０か１２：３０です。"],
    "de": ["Am 3. Oktober kam z. B. Nr. 5. ", "Im Jahr 1999. ", "M. Dupont, bzw. so. ", "gut. ", "Ä.\n"],
    "ko": ["안녕하세요. ", "반갑습니다! "],
}


@st.composite
def streams(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A language and a text of it in arbitrary fragments."""
    language = draw(st.sampled_from(sorted(SENTENCES)))
    text = "".join(draw(st.lists(st.sampled_from(SENTENCES[language]), min_size=1, max_size=12)))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=20)))
    return language, [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def clauses(language: str = "auto", **options) -> ClauseStream:
    return TextFrontEnd(WordCounter(), **options).clauses(language)


def collect(stream: ClauseStream, *fragments: str) -> list[Clause]:
    return [clause for fragment in fragments for clause in stream.push(fragment)] + stream.flush()


def texts(found: list[Clause]) -> list[str]:
    return [clause.text for clause in found]


def test_clause_leaves_when_the_next_word_begins():
    stream = clauses()
    assert stream.push("I have 2 cats. ") == []
    assert stream.push("A") == [Clause("I have two cats.", characters=15)]
    assert stream.push("nd a dog; b") == [Clause(" And a dog;", characters=26)]
    assert stream.flush() == [Clause(" b.", characters=27)]


@pytest.mark.parametrize(
    "fragments",
    [("It is 3.", "14 or so. ", "Yes"), ("It is 3.14 o", "r so. Yes"), tuple("It is 3.14 or so. Yes")],
)
def test_number_that_comes_in_two_pieces_is_read_whole(fragments):
    assert texts(collect(clauses(), *fragments)) == ["It is three point one four or so.", " Yes."]


@pytest.mark.parametrize("fragments", [("Ask Dr.", " Smith. Now"), ("Ask D", "r. ", "Smith.", " Now")])
def test_abbreviation_does_not_end_a_clause(fragments):
    assert texts(collect(clauses(), *fragments)) == ["Ask Dr. Smith.", " Now."]


@pytest.mark.parametrize(
    ("language", "text", "spoken"),
    [
        (
            "de",
            "Am 3. Oktober kam z. B. Nr. 5 auf den 2. Platz.",
            "Am dritten Oktober kam zum Beispiel Nummer fünf auf den zweiten Platz.",
        ),
        ("sv", "Voici M. Dupont.", "Voici M. Dupont."),
        ("de", "3. FC.", "dritter FC."),
    ],
)
def test_ordinals_and_initials_do_not_end_a_clause(language, text, spoken):
    assert texts(collect(clauses(language), *text, *" Xa")) == [spoken, " Xa."]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1. Mehl\n2. 3 Eier\n", ["eins, Mehl. zwei;", " drei Eier."]),
        ("Der 3. Mai ist frei. Ja.", ["Der dritte Mai ist frei.", " Ja."]),
        ("iPhone 15: das ist 3-mal so viel.", ["iPhone fünfzehn:", " das ist drei-mal so viel."]),
        ("5. 6.", ["five.", " six."]),
        ("Nokia 3310: " + "ach " * 20 + "und 5.", ["Nokia three thousand, three hundred and ten:"]),
    ],
)
def test_digit_alone_does_not_decide_the_language(text, expected):
    found = texts(collect(clauses(), *text))
    assert found[: len(expected)] == expected
    assert texts(collect(clauses(), text)) == found


def test_clause_with_digits_waits_for_few_words():
    stream = clauses()
    assert stream.push("Nokia 3310: " + "ach " * 11) == []
    assert len(stream.push("ach ach")) == 1


def test_chinese_clause_ends_at_its_marks():
    stream = clauses()
    assert texts(stream.push("今天25度，湿度60%。你好")) == ["今天二十五度，湿度百分之六十。"]
    assert stream.flush() == [Clause("你好。", characters=14)]


@pytest.mark.parametrize(
    ("language", "fragments", "expected"),
    [
        (
            "zh",
            ("会议时间是12：", "30，比分是3：", "2。好"),
            ["会议时间是十二点三十分，比分是三比二。", "好。"],
        ),
        ("ja", ("会議は１２", "：３０です。", "はい"), ["会議は十二時三十分です。", "はい。"]),
        ("ja", ("会議は１２:", "３０です。", "はい"), ["会議は十二時三十分です。", "はい。"]),
        ("zh", ("结果12：", "你好"), ["结果十二：", "你好。"]),
        ("zh", ("验证码：", "8016。好"), ["验证码：八零一六。", "好。"]),
        ("zh", ("航班号：", "CA1234。好"), ["航班号：CA幺二三四。", "好。"]),
        ("ko", ("인증번호: ", "482913."), ["인증번호: 사팔이구일삼."]),
        ("zh", ("80、", "90后。好"), ["八零、九零后。", "好。"]),
    ],
)
def test_colon_of_any_width_in_a_time_or_score_does_not_end_a_clause(language, fragments, expected):
    assert texts(collect(clauses(language), *fragments)) == expected


@given(stream=streams(), other=st.lists(st.integers(0, 200), max_size=20))
def test_clauses_do_not_depend_on_how_the_text_is_divided(stream, other):
    language, fragments = stream
    text = "".join(fragments)
    cuts = sorted(min(cut, len(text)) for cut in other)
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert collect(clauses(language), *fragments) == collect(clauses(language), *pieces)


@given(stream=streams())
def test_clauses_together_are_the_text_as_it_is_spoken_whole(stream):
    language, fragments = stream
    found = collect(clauses(language), *fragments)
    try:
        front_end = TextFrontEnd(WordCounter(), limits=SplitLimits(hard=None))
        whole = front_end.segments("".join(fragments), language)
    except InvalidInput:
        assert found == []
    else:
        assert "".join(texts(found)) == "".join(whole)


@given(stream=streams())
def test_characters_grow_and_never_pass_what_was_pushed(stream):
    language, fragments = stream
    found = [clause.characters for clause in collect(clauses(language), *fragments)]
    assert found == sorted(found)
    assert all(0 < count <= len("".join(fragments)) for count in found)


@given(text=st.text(alphabet="你好ab ，3", min_size=1, max_size=300), size=st.integers(1, 40))
def test_text_without_marks_leaves_in_bounded_parts(text, size):
    stream = clauses("zh", normaliser="none", limits=SHORT)
    fragments = [text[start : start + size] for start in range(0, len(text), size)]
    found = collect(stream, *fragments)
    assert all(len(clause) <= SHORT.hard + 1 for clause in texts(found))
    assert found == collect(clauses("zh", normaliser="none", limits=SHORT), text)


def test_flush_ends_the_clause_and_the_next_text_begins_anew():
    stream = clauses()
    assert stream.push("  Hello") == []
    assert stream.flush() == [Clause("Hello.", characters=7)]
    assert stream.flush() == []
    assert stream.push(" Wait. N") == [Clause("Wait.", characters=14)]
    assert stream.flush() == [Clause(" N.", characters=15)]


def test_what_can_not_be_spoken_is_counted_with_what_comes_next():
    stream = clauses()
    assert stream.push("... ! ") == []
    assert stream.flush() == []
    assert stream.push("Yes. A") == [Clause("Yes.", characters=11)]


def test_language_of_the_text_so_far_stays_that_of_what_follows_a_flush():
    stream = clauses()
    stream.push("你好")
    stream.flush()
    assert texts(collect(stream, "25")) == ["二十五。"]


def test_language_must_be_one():
    with pytest.raises(InvalidInput, match="language: 'english!'"):
        clauses("english!")


LONG_WITH_NUMBER = [
    (
        "en",
        "word " * 150 + "for 1,234,567 dollars " + "people " * 30,
        "thousand, five hundred and sixty-seven dollars",
    ),
    ("zh", "这" * 152 + "价3,456,789元，" + "那" * 30, "三百四十五万六千七百八十九元"),
    ("de", "Wort " * 155 + "auf 12,5 Millionen " + "und " * 40, "zwölf Komma fünf Millionen"),
]
"""Longer than a sentence may be, so that they are cut near the number."""


@pytest.mark.parametrize(("language", "text", "number"), LONG_WITH_NUMBER)
def test_a_number_is_spoken_as_one_though_its_sentence_is_cut(language: str, text: str, number: str) -> None:
    front_end = TextFrontEnd(WordCounter())
    clauses = front_end.clauses(language)
    found = [clause.text for character in text for clause in clauses.push(character)]
    found += [clause.text for clause in clauses.flush()]
    for parts in (found, front_end.segments(text, language)):
        assert len(parts) > 1
        assert any(number in part for part in parts)
