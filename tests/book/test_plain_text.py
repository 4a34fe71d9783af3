"""Chapters and paragraphs of plain texts and of Markdown."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosyvoice_runtime.book.chapters import Chapter
from cosyvoice_runtime.book.markdown_text import book_of_markdown
from cosyvoice_runtime.book.opening import MOST_TEXT_BYTES, read_book
from cosyvoice_runtime.book.plain_text import chapters_of_text
from cosyvoice_runtime.errors import InvalidInput


def titles(text: str) -> list[str]:
    return [chapter.title for chapter in chapters_of_text(text)]


def test_paragraphs_stand_between_blank_lines_and_the_heading_is_read_aloud() -> None:
    text = "Tale\n\nCHAPTER I.\nDown the hole\n\nOne line\nand another.\n\n\n* * *\n\nTwo.\n\nChapter 2\n\n3."
    assert chapters_of_text(text) == [
        Chapter("", ["Tale"]),
        Chapter(
            "CHAPTER I. Down the hole",
            ["CHAPTER I. Down the hole", "One line\nand another.", "* * *", "Two."],
        ),
        Chapter("Chapter 2", ["Chapter 2", "3."]),
    ]


@pytest.mark.parametrize(
    "heading",
    [
        "# The sea",
        "## The sea ##",
        "Chapter 1",
        "CHAPTER ONE",
        "Chapter Twenty-one: The sea",
        "Part the First",
        "BOOK XIV",
        "Prologue",
        "EPILOGUE",
        "第一章 大海",
        "第12回",
        "第二十三节",
        "THE OPEN SEA",
        "ÜBER DAS MEER",
    ],
)
def test_heading_begins_a_chapter(heading: str) -> None:
    [before, chapter] = chapters_of_text(f"Before.\n\n{heading}\n\nAfter.")
    assert before.paragraphs == ["Before."]
    assert chapter.title == heading.strip("# ")
    assert chapter.paragraphs == [chapter.title, "After."]


@pytest.mark.parametrize(
    "line",
    [
        "Chapter houses are old.",
        "Chapter 1 of this book was written in a hurry.",
        "Prologue to what came later",
        "第一次见面。",
        "NO!",
        "STOP THAT!",
        "1984",
        "Part of it was lost.",
        "### Sea",
    ],
)
def test_line_that_is_no_heading_is_a_paragraph(line: str) -> None:
    assert titles(f"Before.\n\n{line}\n\nAfter.") == [""]


def test_headings_are_of_one_kind() -> None:
    assert titles("Chapter 1\n\nOne.\n\nTHE END\n\nNotes.") == ["Chapter 1"]
    assert titles("# One\n\nChapter 1\n\nTHE END\n\nNotes.") == ["One"]


def test_list_of_contents_is_a_paragraph() -> None:
    lines = "\n".join(f"CHAPTER {number}. A title" for number in ["I", "II", "III", "IV"])
    assert titles(f"{lines}\n\nCHAPTER I. A title\n\nText.") == ["", "CHAPTER I. A title"]


def test_chinese_text_has_paragraphs_by_indents_and_chapters_by_lines() -> None:
    text = "第一章 开始\n　　他来了。\n　　她走了。\n第二章\n　　再见。\n\n　　完。"
    assert chapters_of_text(text) == [
        Chapter("第一章 开始", ["第一章 开始", "他来了。", "她走了。"]),
        Chapter("第二章", ["第二章", "再见。", "完。"]),
    ]


def test_every_line_is_a_paragraph_where_no_line_is_blank() -> None:
    assert chapters_of_text("One.\nTwo.\nThree.\n") == [Chapter("", ["One.", "Two.", "Three."])]


def test_markdown_has_chapters_by_its_headings_and_no_code() -> None:
    book = book_of_markdown(
        "---\ntitle: 'A *tale*'\nauthor: Jo\n---\n\nBefore.\n\n# One **two**\n\n"
        "See [this](https://a.b)\nand *that*.\n\n```\ncode\n\nmore\n```\n\n- a\n- b"
        "\n\n### Small\n\n***\n\nThree\n-----\nend"
    )
    assert (book.title, book.author) == ("A *tale*", "Jo")
    assert book.chapters == [
        Chapter("", ["Before."]),
        Chapter("One two", ["One two", "See this\nand that.", "- a\n- b", "Small", "***"]),
        Chapter("Three", ["Three", "end"]),
    ]


@pytest.mark.parametrize("first", ["He blew: hard.", "\nHe blew.\n", "# One\n\nWords."])
def test_text_between_two_rules_is_no_front_matter(first: str) -> None:
    said = [
        text
        for chapter in book_of_markdown(f"---\n{first}\n\n---\n\nEnd.").chapters
        for text in chapter.paragraphs
    ]
    assert said[-1] == "End."
    assert len(said) > 1


def test_front_matter_may_have_lists_remarks_and_empty_lines() -> None:
    book = book_of_markdown("---\n# of mine\ntitle: Sea\ntags:\n- a\n  - b\n\nlast-edit: 1\n---\nWords.")
    assert (book.title, book.chapters) == ("Sea", [Chapter("", ["Words."])])


def test_markdown_s_blocks_of_html_are_read_without_their_tags() -> None:
    book = book_of_markdown(
        "<h1 align='center'>One</h1>\n\n<div>Inner <b>words</b> &amp; more.\n<p>Next.</p></div>\n\n"
        "<!-- unread -->\n\n<style>p {}</style>\n\nEnd."
    )
    assert book.chapters == [Chapter("One", ["One", "Inner words & more.", "Next.", "End."])]


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_text_may_begin_with_a_byte_order_mark_and_have_any_line_ends(tmp_path: Path) -> None:
    path = write(tmp_path / "tale.txt", "\ufeffChapter 1\r\n\r\nOne\rtwo.".encode())
    book = read_book(path)
    assert book.title == "tale"
    assert book.chapters == [Chapter("Chapter 1", ["Chapter 1", "One\ntwo."])]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", b"caf\xe9", "UTF-8 is expected, and byte 3 is none"),
        ("a.txt", "tale".encode("utf-16"), "UTF-8 is expected, and byte 0 is none"),
        ("a.txt", b" \n\n\t\n", "it holds no text"),
        ("a.md", b"```\ncode\n```", "it holds no text"),
        ("a.pdf", b"%PDF", "expected a name ending in one of .txt, .md, .markdown, .epub"),
    ],
)
def test_book_that_can_not_be_read_is_named(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    with pytest.raises(InvalidInput, match="book: ") as refused:
        read_book(write(tmp_path / name, content))
    assert words in str(refused.value)


def test_text_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with open(path, "wb") as file:
        file.truncate(MOST_TEXT_BYTES + 1)
    with pytest.raises(InvalidInput, match=f"it has {MOST_TEXT_BYTES + 1} bytes"):
        read_book(path)
