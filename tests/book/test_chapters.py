"""Passages of a book."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.book.chapters import Book, Chapter, Gap, Passage, keys_of, passages_of, pieces_of


def test_passages_are_the_paragraphs_that_can_be_spoken() -> None:
    book = Book("", "", [Chapter("One", ["One", "a", "* * *", "b"]), Chapter("Two", ["-", "Two", "c"])])
    assert passages_of(book, str.isalnum) == [
        Passage("One", 0, Gap.CHAPTER),
        Passage("a", 0, Gap.PARAGRAPH),
        Passage("b", 0, Gap.CHAPTER),
        Passage("Two", 1, Gap.CHAPTER),
        Passage("c", 1, Gap.PARAGRAPH),
    ]


def test_long_paragraph_is_cut_behind_sentences() -> None:
    sentence = "Mr. Lee said so, e.g. to me. "
    pieces = list(pieces_of(sentence * 5, 70))
    assert pieces == [(sentence * 2).strip()] * 2 + [sentence.strip()]
    assert list(pieces_of("他来了。" * 5, 10)) == ["他来了。他来了。"] * 2 + ["他来了。"]
    book = Book("", "", [Chapter("", ["Long sentence here. " * 100])])
    assert [passage.gap for passage in passages_of(book, bool)] == [Gap.CHAPTER, Gap.NONE]


@given(st.text(alphabet="ab .。\n", max_size=80), st.integers(1, 20))
def test_pieces_hold_all_of_a_paragraph_and_none_is_too_long(paragraph: str, most: int) -> None:
    pieces = list(pieces_of(paragraph, most))
    assert all(0 < len(piece) <= most for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(paragraph.split())


def test_passages_have_keys_by_their_texts() -> None:
    keys = keys_of([Passage(text, 0, Gap.NONE) for text in "aba"])
    assert len(set(keys)) == 3
    assert keys_of([Passage(text, 1, Gap.CHAPTER) for text in "caba"])[1:] == keys
