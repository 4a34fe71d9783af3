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


def test_folders_of_the_library_import_each_other_in_one_direction() -> None:
    """Entry points (``__main__.py``) and imports for type checkers aside."""
    library = ROOT / "cosyvoice_runtime"
    imports: dict[str, set[str]] = defaultdict(set)
    for path in library.rglob("*.py"):
        if path.name != "__main__.py":
            folder = path.relative_to(library).parts[0].removesuffix(".py")
            imports[folder] |= imported_folders(ast.parse(path.read_text("utf-8"))) - {folder}
    assert imports["serving"] >= {"pipeline", "lm"}
    assert {folder for folder in imports if folder in reached(folder, imports)} == set()


def imported_folders(module: ast.Module) -> set[str]:
    typing = [node for node in ast.walk(module) if is_for_type_checkers(node)]
    hidden = {id(inner) for node in typing for inner in ast.walk(node)}
    names: list[str] = []
    for node in ast.walk(module):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("cosyvoice_runtime.")}


def is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def reached(folder: str, imports: dict[str, set[str]]) -> set[str]:
    """Folders that it imports, and those that they import."""
    found: set[str] = set()
    waiting = [folder]
    while waiting:
        new = imports[waiting.pop()] - found
        found |= new
        waiting += new
    return found
