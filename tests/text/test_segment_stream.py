from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_tokenizer import WordCounter

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.text.frontend import TextFrontEnd
from cosyvoice_runtime.text.segment_stream import EAGER, SegmentStream
from cosyvoice_runtime.text.split import SplitLimits

LIMITS = SplitLimits(maximum=12, minimum=6, merge=3)
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


def collect(segments: SegmentStream, fragments: list[str]) -> list[str]:
    return [segment for fragment in fragments for segment in segments.push(fragment)] + segments.end()


@given(stream=streams(), limits=st.sampled_from([LIMITS, EAGER, SplitLimits()]))
def test_segments_equal_the_segments_of_the_whole(stream: tuple[str, list[str]], limits: SplitLimits) -> None:
    language, fragments = stream
    front_end = TextFrontEnd(WordCounter(), limits=limits)
    try:
        expected = front_end.segments("".join(fragments), language)
    except InvalidInput:
        with pytest.raises(InvalidInput):
            collect(front_end.stream(language), fragments)
    else:
        assert collect(front_end.stream(language), fragments) == expected


@given(text=st.text(alphabet="你好ab ，3", min_size=1, max_size=300), size=st.integers(1, 40))
def test_text_without_marks_leaves_in_bounded_segments(text: str, size: int) -> None:
    limits = SplitLimits(maximum=12, minimum=6, merge=3, hard=20)
    front_end = TextFrontEnd(WordCounter(), normaliser="none", limits=limits)
    segments = front_end.stream("zh")
    fragments = [text[start : start + size] for start in range(0, len(text), size)]
    left = [segment for fragment in fragments for segment in segments.push(fragment)]
    assert limits.longest is not None
    assert all(len(segment) <= limits.longest for segment in left)
    assert len(text) - len("".join(left)) <= limits.longest + limits.hard + 1 + len(text) - len(text.strip())


def test_eager_segment_leaves_with_its_sentence() -> None:
    segments = TextFrontEnd(WordCounter()).stream("en", EAGER)
    assert segments.push("The cat that I saw had 2 or 3 small kittens.") == []
    assert segments.push(" T") == ["The cat that I saw had two or three small kittens."]
    assert segments.push("hen it left.") == []
    assert segments.end() == [" Then it left."]


def test_language_follows_the_text_so_far() -> None:
    segments = TextFrontEnd(WordCounter()).stream(limits=EAGER)
    assert segments.push("I am number 5 and you are not, so there you are. 价") == [
        "I am number five and you are not, so there you are."
    ]


def test_two_streams_do_not_share_state() -> None:
    front_end = TextFrontEnd(WordCounter())
    first, second = front_end.stream("en"), front_end.stream("en")
    first.push("One")
    second.push("Two")
    assert (first.end(), second.end()) == (["One."], ["Two."])


@pytest.mark.parametrize("fragments", [[], [""], [" ", "\n"], ["。", "！"], ["... ", "!"]])
def test_stream_with_nothing_to_speak_is_invalid_input(fragments: list[str]) -> None:
    with pytest.raises(InvalidInput, match="target_text"):
        collect(TextFrontEnd(WordCounter()).stream(), fragments)


@pytest.mark.parametrize("fragment", ["\x00", "\ud800", "a" * 9_990])
def test_malformed_or_too_long_stream_is_invalid_input(fragment: str) -> None:
    segments = TextFrontEnd(WordCounter()).stream("en")
    segments.push("Hello there. ")
    with pytest.raises(InvalidInput, match="target_text"):
        segments.push(fragment)


LONG_WITH_NUMBER = [
    (
        "en",
        "word " * 150 + "for 1,234,567 dollars " + "people " * 30,
        "thousand, five hundred and sixty-seven dollars",
    ),
    ("zh", "这" * 152 + "价3,456,789元，" + "那" * 30, "三百四十五万六千七百八十九元"),
    ("de", "Wort " * 155 + "auf 12,5 Millionen " + "und " * 40, "12,5 Millionen"),
]
"""Longer than a sentence may be, so that they are cut near the number."""


@pytest.mark.parametrize(("language", "text", "number"), LONG_WITH_NUMBER)
def test_a_number_is_spoken_as_one_though_its_sentence_is_cut(language: str, text: str, number: str) -> None:
    front_end = TextFrontEnd(WordCounter())
    clauses = front_end.clauses(language)
    found = [clause.text for character in text for clause in clauses.push(character)]
    found += [clause.text for clause in clauses.flush()]
    segments = collect(front_end.stream(language), list(text))
    for parts in (found, segments, front_end.segments(text, language)):
        assert len(parts) > 1
        assert any(number in part for part in parts)
