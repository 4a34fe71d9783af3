"""CosyVoice3's texts: instructions before the words, and units of pronunciation among them."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_tokenizer import WordCounter

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families import COSYVOICE3
from cosyvoice_runtime.families.tokens import UNITS
from cosyvoice_runtime.text.frontend import TextFrontEnd
from cosyvoice_runtime.text.split import SplitLimits
from cosyvoice_runtime.text.tokenizer import TextTokenizer
from cosyvoice_runtime.text.validate import special_pattern

PREFIX = "You are a helpful assistant.<|endofprompt|>"
SMALL = SplitLimits(maximum=12, minimum=6, merge=3, hard=20)
FRONT_END = TextFrontEnd(WordCounter(), family=COSYVOICE3)
FOUND = special_pattern(UNITS)


@pytest.mark.parametrize(
    ("text", "segment"),
    [
        ("The word [R][IY1][D] costs $3.", "The word [R][IY1][D] costs three dollars."),
        ("高管对报道[j][ǐ]予好评3次。", "高管对报道[j][ǐ]予好评三次。"),
        ("He [R][EH1][D] it [ǐ] on 3 days.", "He [R][EH1][D] it [ǐ] on three days."),
    ],
)
def test_units_of_pronunciation_survive_and_numbers_are_read(text: str, segment: str) -> None:
    assert FRONT_END.segments(text) == [segment]


@given(st.lists(st.one_of(st.sampled_from(UNITS), st.sampled_from(["3 ", "好", "word ", "."])), min_size=3))
def test_no_unit_is_ever_changed_or_cut(parts: list[str]) -> None:
    units = [part for part in parts if part in UNITS]
    front_end = TextFrontEnd(WordCounter(), limits=SMALL, family=COSYVOICE3, cached_texts=0)
    segments = front_end.segments("a " + "".join(parts))
    assert [unit for segment in segments for unit in FOUND.findall(segment)] == units


def test_units_are_single_tokens(tokenizer_directory: Path) -> None:
    tokenizer = TextTokenizer(tokenizer_directory, COSYVOICE3.special_tokens)
    assert len(tokenizer.encode("[R][IY1][D]")) == 3
    assert [tokenizer.decode([id_]) for id_ in tokenizer.encode("[j][ǐ]")] == ["[j]", "[ǐ]"]
    first = tokenizer.id_of("<|endoftext|>")
    ids = [tokenizer.id_of(token) for token in COSYVOICE3.special_tokens]
    assert ids == list(range(first, first + 281))


def test_each_segment_of_a_long_text_has_the_instruction() -> None:
    front_end = TextFrontEnd(WordCounter(), limits=SMALL, family=COSYVOICE3)
    plain = front_end.segments("It costs $3 today, and it is late. " * 4)
    assert len(plain) > 2
    told = front_end.segments(PREFIX + "It costs $3 today, and it is late. " * 4)
    assert told == [PREFIX + segment for segment in plain]


def test_an_instruction_without_words_says_nothing() -> None:
    with pytest.raises(InvalidInput, match="target_text"):
        FRONT_END.segments("You are a helpful assistant. 请用广东话表达。<|endofprompt|>")


def test_an_instruction_is_told_in_spite_of_invisible_characters() -> None:
    prefix = PREFIX.replace("|>", "\u200b|\u200b>")
    assert FRONT_END.segments(prefix + "It costs $3.") == [PREFIX + "It costs three dollars."]
    assert FRONT_END.transcript(prefix + "It costs $3.") == PREFIX + "It costs three dollars."


def test_transcript_keeps_its_instruction() -> None:
    assert FRONT_END.transcript(PREFIX + "It costs $3.") == PREFIX + "It costs three dollars."


def test_marker_is_demanded_in_one_of_the_texts() -> None:
    with pytest.raises(InvalidInput, match=r"reference_text: '5 characters' .*You are a helpful assistant"):
        FRONT_END.missing_instruction("reference_text", "words", "more words")
    FRONT_END.missing_instruction("reference_text", "words", PREFIX + "more words")
    FRONT_END.missing_instruction("reference_text", PREFIX.replace("<|", "<\u200b|"))
    TextFrontEnd(WordCounter()).missing_instruction("reference_text", "words")


def test_units_are_told_however_their_accents_are_written() -> None:
    composed = "报道[j][ǐ]予好评。"
    decomposed = unicodedata.normalize("NFD", composed)
    assert decomposed != composed
    assert FRONT_END.segments(decomposed) == [composed]
    stream = FRONT_END.clauses()
    assert [clause.text for clause in [*stream.push(decomposed), *stream.flush()]] == [composed]


def test_units_survive_in_text_that_arrives_over_time() -> None:
    stream = FRONT_END.clauses()
    text = "She [R][EH1][D] the whole of the book in one long day. Then she slept for 9 hours."
    clauses = [clause for character in text for clause in stream.push(character)] + stream.flush()
    assert "".join(clause.text for clause in clauses) == (
        "She [R][EH1][D] the whole of the book in one long day. Then she slept for nine hours."
    )
