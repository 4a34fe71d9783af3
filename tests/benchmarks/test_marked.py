"""The sizes in docs/request.md are true; numbers of tables that programs write may drift a little."""

from __future__ import annotations

from pathlib import Path

import pytest

from measuring.house import house
from measuring.machine import ROOT
from measuring.marked import differences, put

DRIFT = 0.1


def test_page_has_the_sizes_of_the_code_and_the_pages():
    wrong = differences(ROOT / "docs" / "request.md", "house", house(), DRIFT)
    assert wrong == [], "benchmarks/request_path.py --house --write puts today's sizes into docs/request.md"


@pytest.mark.parametrize(
    ("now", "wrong"),
    [
        ("a 12\nb 1,020", []),
        ("a 13\nb 1,000", ["a 13"]),
        ("a 12\nb 1,100", ["b 1,100"]),
        ("c 12\nb 1,000", ["c 12"]),
        ("a 12\nb 1,000\nc 1", ["c 1"]),
        ("a 12", ["b 1,000 is too much"]),
    ],
)
def test_small_numbers_are_exact_and_large_ones_nearly(tmp_path: Path, now: str, wrong: list[str]):
    page = tmp_path / "page.md"
    page.write_text("Before.\n<!-- sizes -->\n<!-- /sizes -->\nAfter 12.\n")
    put(page, "sizes", "a 12\nb 1,000")
    assert page.read_text() == "Before.\n<!-- sizes -->\na 12\nb 1,000\n<!-- /sizes -->\nAfter 12.\n"
    assert differences(page, "sizes", now, 0.05) == wrong
