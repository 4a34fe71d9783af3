"""Books in EPUB."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from cosyvoice_runtime.book import epub
from cosyvoice_runtime.book.chapters import Chapter
from cosyvoice_runtime.book.opening import read_book
from cosyvoice_runtime.errors import InvalidInput

CONTAINER = '<container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
PACKAGE = """<?xml version="1.0"?>
<package xmlns="http://www.idpf.org/2007/opf"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">
<dc:title>The <!-- whole --> sea</dc:title><dc:creator>Jo &amp; Al</dc:creator></metadata>
<manifest>
<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>
<item id="ncx" href="toc.ncx" media-type="application/x-dtbncx+xml"/>
<item id="cover" href="cover.jpg" media-type="image/jpeg"/>
<item id="one" href="text/one%20page.xhtml" media-type="application/xhtml+xml"/>
<item id="two" href="text/two.xhtml" media-type="application/xhtml+xml"/>
<item id="aside" href="text/aside.xhtml" media-type="application/xhtml+xml"/>
</manifest>
<spine toc="ncx"><itemref idref="cover"/>
<itemref idref="nav"/><itemref idref="one"/><itemref idref="aside" linear="no"/>
<itemref idref="two"/><itemref idref="missing"/></spine></package>"""
NAV = """<html><body><nav epub:type="toc"><ol><li><a href="text/one%20page.xhtml">One:
<span>calm</span></a></li>
<li><a href="text/two.xhtml#b">Two</a></li><li><a href="text/two.xhtml#c">Three</a></li>
</ol></nav><nav epub:type="landmarks"><a href="text/one%20page.xhtml">Begin</a></nav></body></html>"""
NCX = """<ncx><docTitle><text>Sea</text></docTitle><navMap><navPoint><navLabel><text>Eins</text></navLabel>
<content src="text/one%20page.xhtml"/><navPoint><navLabel><text>Zwei</text></navLabel>
<content src="text/two.xhtml#b"/></navPoint></navPoint></navMap></ncx>"""
ONE = """<!DOCTYPE html><html><head><title>Unread</title><style>p {}</style></head><body>
<h1>One: calm</h1><p>A calm
sea&nbsp;lay<a epub:type="noteref" href="#n">7</a> there.<br/>So it did.</p><svg><text>no</text></svg>
<p><ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp></ruby>字 &lt;3</p><p hidden="">no</p>
<img alt="no" src="x"/></body></html>"""
TWO = """<html><body><p>Before.</p><section id="b"><p>It blew.</p></section><div><a id="c"></a>
<h2>three</h2>Loose text<p>End.</p></div></body></html>"""
FILES = {
    "META-INF/container.xml": CONTAINER,
    "OEBPS/book.opf": PACKAGE,
    "OEBPS/nav.xhtml": NAV,
    "OEBPS/toc.ncx": NCX,
    "OEBPS/text/one page.xhtml": ONE,
    "OEBPS/text/two.xhtml": TWO,
    "OEBPS/text/aside.xhtml": "<p>Aside.</p>",
}


def write(path: Path, files: dict[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


CALM = ["One: calm", "A calm sea lay there.\nSo it did.", "漢字 <3"]


def test_chapters_are_those_of_the_contents_and_pages_those_of_the_spine(tmp_path: Path) -> None:
    book = read_book(write(tmp_path / "sea.epub", FILES))
    assert (book.title, book.author) == ("The sea", "Jo & Al")
    assert book.chapters == [
        Chapter("One: calm", [*CALM, "Before."]),
        Chapter("Two", ["Two", "It blew."]),
        Chapter("Three", ["three", "Loose text", "End."]),
    ]


def test_names_of_the_package_and_the_ncx_may_have_prefixes(tmp_path: Path) -> None:
    package = re.sub(r"<(/?)(package|metadata|manifest|item|spine|itemref)\b", r"<\1opf:\2", PACKAGE)
    package = package.replace(' properties="nav"', "").replace('<opf:itemref idref="nav"/>', "")
    ncx = re.sub(r"<(/?)(\w+)", r"<\1ncx:\2", NCX)
    files = FILES | {"OEBPS/book.opf": package, "OEBPS/toc.ncx": ncx}
    book = read_book(write(tmp_path / "sea.epub", files))
    assert (book.title, book.author) == ("The sea", "Jo & Al")
    assert [chapter.title for chapter in book.chapters] == ["Eins", "Zwei"]


@pytest.mark.parametrize(
    ("title", "first", "is_said"),
    [
        ("I", "It was night.", False),
        ("I", "I was born.", False),
        ("1", "1984 was a year.", False),
        ("I", "I.", True),
        ("II", "II: The fall", True),
        ("1", "1 The beginning", True),
        ("1", "12 men", False),
        ("I. The fall", "I", True),
        ("The fall", "Chapter 1: The fall", True),
        ("第一章", "第一章 海", True),
    ],
)
def test_title_that_no_paragraph_says_is_read(tmp_path: Path, title: str, first: str, is_said: bool) -> None:
    pages = {"OEBPS/text/two.xhtml": f"<p>{first}</p><p>Then.</p>", "OEBPS/text/one page.xhtml": "<p>Hi.</p>"}
    nav = f"<a href='text/one%20page.xhtml'>Hi</a><a href='text/two.xhtml'>{title}</a>"
    pages["OEBPS/nav.xhtml"] = f"<nav epub:type='toc'>{nav}</nav>"
    book = read_book(write(tmp_path / "sea.epub", FILES | pages))
    assert book.chapters[1] == Chapter(title, [*([] if is_said else [title]), first, "Then."])


def test_numbers_of_notes_are_left_out_by_their_role_too(tmp_path: Path) -> None:
    page = FILES["OEBPS/text/one page.xhtml"].replace('epub:type="noteref"', 'role="doc-noteref"')
    chapters = read_book(write(tmp_path / "sea.epub", FILES | {"OEBPS/text/one page.xhtml": page})).chapters
    assert chapters[0].paragraphs == [*CALM, "Before."]


@pytest.mark.parametrize("style", ["display:none", "color: red; DISPLAY : none;", "visibility: hidden"])
def test_what_its_own_style_hides_is_left_out(tmp_path: Path, style: str) -> None:
    page = FILES["OEBPS/text/one page.xhtml"].replace('hidden=""', f'style="{style}"')
    page = page.replace("<p>A calm", '<p style="display: block; content: none">A calm')
    chapters = read_book(write(tmp_path / "sea.epub", FILES | {"OEBPS/text/one page.xhtml": page})).chapters
    assert chapters[0].paragraphs == [*CALM, "Before."]


def test_chapters_begin_at_names_of_links_too(tmp_path: Path) -> None:
    page = FILES["OEBPS/text/two.xhtml"].replace('<a id="c">', '<a name="c">')
    chapters = read_book(write(tmp_path / "sea.epub", FILES | {"OEBPS/text/two.xhtml": page})).chapters
    assert [chapter.title for chapter in chapters] == ["One: calm", "Two", "Three"]


def test_titles_of_epub_2_are_those_of_its_ncx(tmp_path: Path) -> None:
    package = PACKAGE.replace(' properties="nav"', "").replace('<itemref idref="nav"/>', "")
    chapters = read_book(write(tmp_path / "sea.epub", FILES | {"OEBPS/book.opf": package})).chapters
    assert [chapter.title for chapter in chapters] == ["Eins", "Zwei"]
    assert chapters[0].paragraphs == ["Eins", *CALM, "Before."]


def test_book_without_contents_has_chapters_by_its_headings(tmp_path: Path) -> None:
    package = (
        PACKAGE.replace('<item id="n', '<item id="x').replace(' properties="nav"', "").replace("ncx", "other")
    )
    chapters = read_book(write(tmp_path / "sea.epub", FILES | {"OEBPS/book.opf": package})).chapters
    assert [chapter.title for chapter in chapters] == ["One: calm", "three"]
    assert chapters[1].paragraphs == ["three", "Loose text", "End."]


def test_entities_of_a_file_are_not_expanded(tmp_path: Path) -> None:
    page = '<!DOCTYPE html [<!ENTITY a "boom">]><html><body><p>It said &a; &amp; left.</p></body></html>'
    book = read_book(write(tmp_path / "sea.epub", FILES | {"OEBPS/text/two.xhtml": page}))
    assert book.chapters[-1].paragraphs[-1] == "It said &a; & left."


ENCRYPTED = '<encryption><CipherReference URI="OEBPS/text/two.xhtml"/></encryption>'
FONT = '<encryption><CipherReference URI="OEBPS/font.otf"/></encryption>'


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"META-INF/container.xml": "<container/>"}, "names no package"),
        ({"META-INF/container.xml": CONTAINER.replace("book", "b")}, "its file OEBPS/b.opf is missing"),
        ({"OEBPS/text/two.xhtml": b"caf\xe9"}, "its file OEBPS/text/two.xhtml is no UTF-8 (byte 3)"),
        ({"META-INF/encryption.xml": ENCRYPTED}, "its page OEBPS/text/two.xhtml is encrypted"),
        ({"OEBPS/book.opf": "<package/>"}, "it holds no text"),
    ],
)
def test_book_that_can_not_be_read_is_refused(
    tmp_path: Path, files: dict[str, str | bytes], words: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_book(write(tmp_path / "sea.epub", FILES | files))
    assert words in str(refused.value)


def test_encrypted_fonts_hinder_nobody(tmp_path: Path) -> None:
    assert read_book(write(tmp_path / "sea.epub", FILES | {"META-INF/encryption.xml": FONT})).chapters


def test_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epub, "MOST_BYTES", 1 << 20)
    bomb = write(tmp_path / "sea.epub", FILES | {"OEBPS/text/two.xhtml": b" " * (2 << 20)})
    assert bomb.stat().st_size < 10_000
    with pytest.raises(InvalidInput, match="its pages have more than 1 MiB"):
        read_book(bomb)


@pytest.mark.parametrize("keep", [0, 100, 700])
def test_damaged_archive_is_refused(tmp_path: Path, keep: int) -> None:
    path = write(tmp_path / "sea.epub", FILES)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InvalidInput, match="it is no sound EPUB"):
        read_book(path)


def test_page_whose_bytes_are_damaged_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "sea.epub", FILES)
    content = bytearray(path.read_bytes())
    place = content.index(b"OEBPS/text/two.xhtml") + 30
    content[place : place + 40] = b"\xff" * 40
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match="it is no sound EPUB"):
        read_book(path)
