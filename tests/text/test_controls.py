"""Control characters are dropped, wherever text comes from and however it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families import FAMILIES
from cosyvoice_runtime.speakable import is_speakable, visible, without_controls
from cosyvoice_runtime.text import TextFrontEnd, instruct
from cosyvoice_runtime.text.controls import ControlDropper
from cosyvoice_runtime.text.rules import plain


class Letters:
    """A tokenizer of characters."""

    def count(self, text: str) -> int:
        return len(text)

    def encode(self, text: str) -> list[int]:
        return list(map(ord, text))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("He\x00llo.", "Hello."),
        ("\x1b[31mred\x1b[0m and \x1b[1;4mbold\x1b[m", "red and bold"),
        ("a \x1b b, [31m stays", "a  b, [31m stays"),
        ("\x1b[" + "1" * 99 + "m", "[" + "1" * 99 + "m"),
        ("a\tb\r\nc\nd", "a\tb\r\nc\nd"),
        ("page\x0cpage\x0bline\x85line", "page\npage\nline\nline"),
        ("\x07\x08\x1f\x7f\x80\x9f", ""),
        ("你\x00好，👋\u200d é", "你好，👋\u200d é"),
    ],
)
def test_controls_are_dropped_and_nothing_else(text: str, kept: str) -> None:
    assert without_controls(text) == kept


@given(st.lists(st.text(alphabet="a \x1b[0;m\x00\x0c.", max_size=12), max_size=6))
def test_any_cut_keeps_what_the_whole_keeps(pieces: list[str]) -> None:
    dropper = ControlDropper()
    kept = "".join([*map(dropper.push, pieces), dropper.flush()])
    assert kept == without_controls("".join(pieces))
    assert dropper.characters(len(kept)) == len("".join(pieces))


def test_characters_count_what_was_dropped_before_them() -> None:
    dropper = ControlDropper()
    kept = dropper.push("\x00ab\x1b[31") + dropper.push("mc\x00\x00d")
    assert kept == "abcd"
    assert [dropper.characters(count) for count in range(5)] == [1, 2, 8, 11, 12]


@pytest.mark.parametrize("normaliser", ["full", "rules", "none"])
@pytest.mark.parametrize("family", FAMILIES)
def test_text_is_spoken_as_without_them(normaliser, family) -> None:
    front_end = TextFrontEnd(Letters(), normaliser, family=family, adds_instruction=True)
    plain, odd = "It costs $5. Really.", "\x00It \x1b[1mcosts\x1b[0m $\x005. Re\x07ally.\x00"
    assert front_end.segments(odd) == front_end.segments(plain)
    assert front_end.transcript(odd) == front_end.transcript(plain)


@pytest.mark.parametrize("size", [1, 2, 5, 99])
def test_clauses_count_characters_as_they_came(size: int) -> None:
    text = "One\x00 is \x1b[1mhere\x1b[0m. Two is\x07 there.\x00\x00"
    stream = TextFrontEnd(Letters()).clauses("en")
    found = [clause for at in range(0, len(text), size) for clause in stream.push(text[at : at + size])]
    found += stream.flush()
    assert [clause.text.strip() for clause in found] == ["One is here.", "Two is there."]
    assert [text[: clause.characters].rstrip() for clause in found] == [text[: text.index(" Two")], text]


def test_text_of_nothing_else_is_refused_as_empty() -> None:
    for text in ("\x00", " \x1b[0m\n"):
        with pytest.raises(InvalidInput, match="it must hold something to speak"):
            TextFrontEnd(Letters()).segments(text)
        assert not is_speakable(visible(text))


def test_instruction_is_followed_as_without_them() -> None:
    assert instruct(Letters(), "Be\x00 calm.", "Yes.") == instruct(Letters(), "Be calm.", "Yes.")
    with pytest.raises(InvalidInput, match="instruct_text"):
        instruct(Letters(), "\x00", "Yes.")


@given(st.text(st.characters(max_codepoint=127)))
def test_text_of_ascii_is_read_as_beside_another_character(text: str) -> None:
    for read in (without_controls, visible, plain):
        assert read(f"{text}\n\xe9") == f"{read(text + chr(10))}\xe9"
