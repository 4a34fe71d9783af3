"""Each family is described in one place, and nothing else of the runtime knows its name."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cosyvoice_runtime.families import FAMILIES, Family, load

RUNTIME = Path(__file__).resolve().parents[2] / "cosyvoice_runtime"
PLACE = re.compile(r"[\w.]+:[\w.]+")
NAMES = re.compile(r"(cosyvoice|COSYVOICE_?)(3|300m|300M)\b")
"""Names of families that are no names of models."""


def places_of(part: object) -> list[str]:
    values = [getattr(part, field.name) for field in dataclasses.fields(part)]  # type: ignore[arg-type]
    inner = [place for each in values if dataclasses.is_dataclass(each) for place in places_of(each)]
    return inner + [each for each in values if isinstance(each, str) and PLACE.fullmatch(each)]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_each_place_of_a_description_is_there(family: Family) -> None:
    places = [place for place in places_of(family) if ".tensorrt." not in place and ".kernels." not in place]
    assert len(places) > 10
    assert [place for place in places if load(place) is None] == []


def test_families_are_named_by_their_descriptions_and_their_own_files_alone() -> None:
    own = {place.split(":")[0] for family in FAMILIES for place in places_of(family)}
    naming = {}
    for path in RUNTIME.rglob("*.py"):
        module = ".".join(("cosyvoice_runtime", *path.relative_to(RUNTIME).with_suffix("").parts))
        if "families" not in path.parts and module not in own:
            imported = [name for name in imported_names(path) if NAMES.search(name) or name == "COSYVOICE2"]
            naming[module] = imported + [name for name in strings_of(path) if NAMES.fullmatch(name)]
    assert {module: names for module, names in naming.items() if names} == {}


def imported_names(path: Path) -> Iterator[str]:
    """Modules and names that a file imports."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module != "cosyvoice_runtime.serving.triton.schema":
            yield node.module or ""
            yield from (alias.name for alias in node.names)


def strings_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
