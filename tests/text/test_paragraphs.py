"""Paragraphs are spoken apart, and each segment tells where in the text it ends."""

from __future__ import annotations

import random
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_tokenizer import WordCounter

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families import COSYVOICE3
from cosyvoice_runtime.text import frontend
from cosyvoice_runtime.text.blocks import BLOCK, LONGEST_BLOCK
from cosyvoice_runtime.text.frontend import LONGEST_CACHED, TextFrontEnd
from cosyvoice_runtime.text.markup import MarkupOptions
from cosyvoice_runtime.text.normalise import Normaliser
from cosyvoice_runtime.text.segment import Segment
from cosyvoice_runtime.text.validate import MAX_TARGET_CHARACTERS

SENTENCES = [
    "The rain had stopped by the time they came to the old house. ",
    '"Who is there?" she asked, and nobody answered. ',
    "In 1987 it cost $45.50, 3 times as much. ",
    "Dr. Smith paid at 10:30 a.m. on Jan. 5. ",
    "Why? ",
]
FRONT_END = TextFrontEnd(WordCounter())


def long_text(characters: int, paragraph: int = 8, seed: int = 1) -> str:
    """A text of sentences, so many of them in a paragraph."""
    draw = random.Random(seed)
    text = ""
    while len(text) < characters:
        text += "".join(draw.choices(SENTENCES, k=paragraph)).strip() + "\n\n"
    return text[:characters]


def spoken(text: str, **options) -> list[tuple[str, bool]]:
    found = TextFrontEnd(WordCounter(), **options).spoken(text)
    return [(segment.text, segment.begins_paragraph) for segment in found]


@pytest.mark.parametrize("markup", ["auto", "plain", "markdown"])
@pytest.mark.parametrize("blank", ["\n\n", "\r\n\r\n", "\n \t\n", " \n\n\n\n"])
def test_an_empty_line_ends_a_segment_and_begins_a_paragraph(blank: str, markup) -> None:
    text = f"One line,\nand the next.{blank}Two."
    assert spoken(text, markup=MarkupOptions(markup)) == [("One line, and the next.", False), ("Two.", True)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# Part 1\nIt rained.\n## Part 2\nSnow.", ["Part one.", "It rained.", "Part two.", "Snow."]),
        ("Title\n=====\nIt rained.", ["Title.", "It rained."]),
        ("<speak><p>One.</p><p>Two.</p> <s>Three.</s></speak>", ["One.", "Two.", "Three."]),
        ("第一章\n\n下雨了。\n\n停了。", ["第一章。", "下雨了。", "停了。"]),
    ],
)  # fmt: skip
def test_headings_and_paragraphs_of_markup_are_paragraphs(text: str, expected: list[str]) -> None:
    found = spoken(text)
    assert [words for words, _ in found] == expected
    assert [begins for _, begins in found] == [False, *[True] * (len(expected) - 1)]


@pytest.mark.parametrize(
    "text",
    ["\n\nOne.\n", "* * *\n\nOne.", "One. Two.\nThree.", "- one\n- two", "| a | b |\n|---|---|\n| c | d |"],
)
def test_what_begins_no_paragraph_is_spoken_as_one(text: str) -> None:
    assert [begins for _, begins in spoken(text)] == [False]


def test_a_silence_between_paragraphs_is_the_one_that_is_asked_for() -> None:
    found = FRONT_END.spoken("One.\n\n[pause:2s]\n\nTwo.")
    assert found == [Segment("One."), Segment("Two.", 2.0)]


@pytest.mark.parametrize("markup", ["auto", "plain"])
@given(
    pieces=st.lists(
        st.sampled_from(["One. ", "two\n", "\n", "# A\n", "- b\n", "  ", "\r\n", "\r", "\t", "3", "。"]),
        min_size=1,
        max_size=14,
    ),
    cuts=st.lists(st.integers(0, 60), max_size=12),
)
def test_paragraphs_of_text_in_pieces_are_those_of_the_whole(pieces, cuts, markup) -> None:
    front_end = TextFrontEnd(WordCounter(), markup=MarkupOptions(markup))
    text = "".join(pieces)
    ends = sorted(min(cut, len(text)) for cut in cuts)
    stream = front_end.clauses("en")
    clauses = [
        clause for start, end in pairwise([0, *ends, len(text)]) for clause in stream.push(text[start:end])
    ] + stream.end()
    try:
        whole = front_end.spoken(text, "en")
    except InvalidInput:
        assert clauses == []
        return
    assert "|".join(("§" if each.begins_paragraph else "") + each.text.strip() for each in clauses).count(
        "§"
    ) == sum(segment.begins_paragraph for segment in whole)
    assert "".join(each.text for each in clauses) == "".join(each.text for each in whole)


def test_each_segment_ends_where_its_last_sentence_does() -> None:
    text = long_text(6_000).rpartition("\n\n")[0]
    found = FRONT_END.spoken(text)
    ends = [segment.characters for segment in found]
    assert ends == sorted(set(ends))
    for segment, (start, end) in zip(found, pairwise([0, *ends]), strict=True):
        written = text[start:end].strip()
        assert written[-1] in '.?!"'
        # Words without numbers are spoken as they are written: both begin and end alike.
        if not any(map(str.isdigit, written)):
            assert segment.text.strip() == " ".join(written.split())


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("你好。\n\n　再见！", [3, 9]),
        ("He\u200bllo.\n\nBy\u00ade now.", [7, 18]),
        ("\x1b[1mOne.\x1b[0m\n\nTwo.", [8, 18]),
        ("**One.**\n\n[Two](http://a.b/c) of it.", [6, 36]),
        ("Café.\n\nCafe\u0301.", [5, 13]),
    ],
)
def test_characters_are_those_of_the_text_as_it_came(text: str, ends: list[int]) -> None:
    assert [segment.characters for segment in FRONT_END.spoken(text)] == ends


def test_an_instruction_before_the_words_counts() -> None:
    text = "You are a helpful assistant.<|endofprompt|>One.\n\nTwo."
    found = TextFrontEnd(WordCounter(), family=COSYVOICE3).spoken(text)
    assert [segment.characters for segment in found] == [len(text) - 6, len(text)]


def test_a_paragraph_that_is_read_in_blocks_is_read_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    text = long_text(LONGEST_BLOCK * 3, paragraph=100).strip()
    sizes = normalised(monkeypatch)
    parts = [segment.text for segment in TextFrontEnd(WordCounter()).spoken(text)]
    assert len(sizes) > 2
    assert max(sizes) <= LONGEST_BLOCK
    assert min(sizes[:-1]) > BLOCK
    monkeypatch.setattr("cosyvoice_runtime.text.blocks.LONGEST_BLOCK", 10**6)
    assert [segment.text for segment in TextFrontEnd(WordCounter()).spoken(text)] == parts


@pytest.mark.parametrize("text", ["word " * 1_000, "字" * 3_000, "7" * 3_000, "a" + " " * 9_000 + "b"])
def test_a_paragraph_without_an_end_of_a_sentence_is_read_whole(text: str) -> None:
    found = FRONT_END.spoken(text)
    assert found[-1].characters == len(text.rstrip())
    said = "".join(segment.text for segment in found)
    assert len(said.replace(" ", "")) >= len(text.replace(" ", ""))


def normalised(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what is normalised from here on."""
    sizes: list[int] = []
    part = Normaliser.part
    monkeypatch.setattr(
        Normaliser,
        "part",
        lambda self, text, *how, **more: sizes.append(len(text)) or part(self, text, *how, **more),
    )
    return sizes


@pytest.mark.parametrize("paragraph", [8, 1_000_000])
def test_the_first_segments_of_the_longest_text_need_as_little_as_those_of_a_short_one(
    monkeypatch: pytest.MonkeyPatch, paragraph: int
) -> None:
    text = long_text(MAX_TARGET_CHARACTERS, paragraph=min(paragraph, 3_000))
    sizes = normalised(monkeypatch)
    segments = iter(TextFrontEnd(WordCounter()).read(text))
    first = list(islice(segments, 4))
    assert sum(sizes) < 3 * LONGEST_BLOCK
    rest = list(segments)
    assert sum(sizes) > 0.9 * MAX_TARGET_CHARACTERS
    assert [*first, *rest] == TextFrontEnd(WordCounter()).spoken(text)
    assert rest[-1].characters == len(text.rstrip())


def test_a_long_text_is_read_once_for_requests_that_go_on_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    text = long_text(LONGEST_CACHED + 1)
    front_end = TextFrontEnd(WordCounter())
    segments = front_end.spoken(text)
    sizes = normalised(monkeypatch)
    assert front_end.spoken(text) == segments
    assert sizes == []
    for other in range(frontend.CACHED_LONG_TEXTS):
        front_end.read(long_text(LONGEST_CACHED + 1, seed=other + 2))
    sizes.clear()
    front_end.read(text)
    assert sizes


def test_an_error_of_a_text_is_told_each_time() -> None:
    text = "<speak>One.</speak><speak>Two."
    for _ in range(2):
        with pytest.raises(InvalidInput, match="it is not closed"):
            FRONT_END.spoken(text)


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        ("\n" * 99_999 + "a", 1),
        (" " * 99_999 + "a", 1),
        ("a\n \n" * 8_999 + "a", 9_000),
        ("\u200b" * 99_999 + "a", 1),
    ],
)
@pytest.mark.parametrize("markup", ["auto", "plain"])
def test_long_runs_of_what_is_silent_are_read(text: str, segments: int, markup) -> None:
    """Where reading took the square of the length, each would take minutes."""
    found = TextFrontEnd(WordCounter(), markup=MarkupOptions(markup)).spoken(text)
    assert [segment.text for segment in found] == ["a."] * segments
    assert found[-1].characters == len(text.rstrip())
