"""Pages and docstrings are plain sentences that can be read alone."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md"))]
MOST_PAGES = 17
MOST_WORDS_OF_A_SENTENCE = 40
MOST_WORDS_OF_A_PARAGRAPH = 120
FRAGMENT = re.compile(r"\s*((Those of|Of an?|Of the|Of those|The same of|What)\b|(Args|Raises|Returns):)")
"""Beginnings of docstrings that are no sentences."""
RETIRED = re.compile(
    r"\b(run|runs|running|ran) dry\b|\bcomes? along\b|\bpage giving\b|\bhappenings\b|\bside by side\b",
    re.IGNORECASE,
)
"""Words that the pages have replaced by the field's own."""
LEFT = {"docs/settings.md": 5}
"""Sentences, paragraphs and retired words by page that are still to be mended: a number may only fall."""
PACKAGES = (
    "benchmarks",
    "client",
    "cosyvoice_dynamo",
    "cosyvoice_front",
    "cosyvoice_runtime",
    "engines",
    "scripts",
)
MENDED = ("engine", "gateway", "lm", "serving")
"""Folders of the runtime whose comments are sentences."""
REMNANT = re.compile(r"# (?!noqa|type:|fmt:|pragma)[a-z]+[ :.,]")
"""The beginning of a comment that is no sentence."""
SENTENCE_END = re.compile(r"(?<=[.?!])[)\"”*]*\s+(?=[A-Z`\[(\"*“0-9])")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


def prose(page: str) -> str:
    """The text of a page without blocks of code and comments, each link and each code a word or its text."""
    text = (ROOT / page).read_text(encoding="utf-8")
    text = re.sub(r"^ *```.*?^ *```", "\n", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "\n", text, flags=re.DOTALL)
    return LINK.sub(r"\1", re.sub(r"`[^`\n]+`", "Code", text))


def paragraphs(page: str) -> Iterator[str]:
    """Paragraphs, items of lists and cells of tables."""
    for block in re.split(r"\n\s*\n|\n(?= *- |\|)", prose(page)):
        if block.lstrip().startswith("|"):
            yield from (cell.strip() for cell in block.strip().strip("|").split(" | "))
        elif not block.lstrip().startswith("#"):
            yield " ".join(block.split()).removeprefix("- ")


def sentences(paragraph: str) -> list[str]:
    return SENTENCE_END.split(paragraph)


def docstrings(path: Path) -> Iterator[str]:
    """Docstrings of a module's parts, and those below its constants and attributes."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        value = (
            node.value.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else None
        )
        if isinstance(value, str):
            yield value


def fragments(folder: str) -> list[str]:
    """Docstrings of a folder's files that begin like no sentence."""
    return [
        f"{path.relative_to(ROOT)}: {text.strip().splitlines()[0]}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for text in docstrings(path)
        if FRAGMENT.match(text)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_plain(page: str) -> None:
    """Sentences and paragraphs are short, and no word is retired."""
    found = [match.group() for match in RETIRED.finditer(prose(page))]
    for paragraph in paragraphs(page):
        found += [paragraph] * (len(paragraph.split()) > MOST_WORDS_OF_A_PARAGRAPH)
        found += [text for text in sentences(paragraph) if len(text.split()) > MOST_WORDS_OF_A_SENTENCE]
    assert len(found) <= LEFT.get(page, 0), "\n".join(found)


def test_there_are_few_pages() -> None:
    assert len(PAGES) - 1 <= MOST_PAGES


@pytest.mark.parametrize("folder", PACKAGES)
def test_docstrings_begin_like_sentences(folder: str) -> None:
    assert fragments(folder) == []


@pytest.mark.parametrize("folder", MENDED)
def test_comments_beside_code_are_sentences(folder: str) -> None:
    found = []
    for path in sorted((ROOT / "cosyvoice_runtime" / folder).rglob("*.py")):
        with path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                beside_code = token.type == tokenize.COMMENT and token.line[: token.start[1]].strip()
                if beside_code and REMNANT.match(token.string):
                    found.append(f"{path.relative_to(ROOT)}:{token.start[0]}: {token.string}")
    assert found == []
