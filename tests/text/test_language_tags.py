"""CosyVoice-300M's language tags: every segment of a text that begins with one is told the language."""

from __future__ import annotations

import pytest
from small_tokenizer import WordCounter

from cosyvoice_runtime.families import COSYVOICE_300M
from cosyvoice_runtime.text.clauses import Clause
from cosyvoice_runtime.text.frontend import TextFrontEnd
from cosyvoice_runtime.text.split import SplitLimits

SMALL = SplitLimits(maximum=12, minimum=6, merge=3, hard=20)
FRONT_END = TextFrontEnd(WordCounter(), limits=SMALL, family=COSYVOICE_300M)
LONG = "It costs $3 today, and it is late. " * 4


def test_each_segment_of_a_long_text_has_the_tag_and_is_read_as_without_it() -> None:
    plain = FRONT_END.segments(LONG, "en")
    assert len(plain) > 2
    assert FRONT_END.segments("<|en|>" + LONG) == ["<|en|>" + segment for segment in plain]


@pytest.mark.parametrize(
    ("text", "language", "segment"),
    [
        ("<|zh|>3只", "auto", "<|zh|>三只"),
        ("  <|en|>3 cats", "auto", "<|en|>three cats"),
        ("<|en|>3只", "zh", "<|en|>三只"),
    ],
)
def test_tag_says_the_language_unless_another_is_asked_for(text: str, language: str, segment: str) -> None:
    [spoken] = FRONT_END.segments(text, language)
    assert spoken.rstrip("。.") == segment


def test_transcript_keeps_its_tag() -> None:
    assert FRONT_END.transcript("<|en|>I have 3 cats.") == "<|en|>I have three cats."


def test_tag_within_a_text_leaves_it_as_it_is() -> None:
    assert FRONT_END.segments("Take 3 <|yue|>三") == ["Take 3 <|yue|>三"]


def test_other_families_leave_a_tag_out() -> None:
    assert TextFrontEnd(WordCounter()).segments("<|en|>3 cats.") == ["three cats."]


@pytest.mark.parametrize(
    "pieces", [["<|en|>I have 2 cats. And 3 dogs."], ["<|e", "n|>I have 2", " cats. And ", "3 dogs."]]
)
def test_each_clause_of_text_in_pieces_has_the_tag(pieces: list[str]) -> None:
    stream = FRONT_END.clauses()
    found = [clause for piece in pieces for clause in stream.push(piece)] + stream.flush()
    assert found == [
        Clause("<|en|>I have two cats.", characters=21),
        Clause("<|en|> And three dogs.", characters=32),
    ]
