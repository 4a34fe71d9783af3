"""What holds for each package as a whole."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("package", ["cosyvoice_runtime", "client/cosyvoice_client"])
def test_no_two_classes_have_one_name(package: str) -> None:
    places = defaultdict(list)
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path.relative_to(ROOT).as_posix())
    assert places
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
