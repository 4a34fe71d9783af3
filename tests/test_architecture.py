"""What holds for each package as a whole."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = "cosyvoice_runtime"
WITHOUT_TORCH = (
    "alignment", "arrays", "audio", "book", "checkpoint", "engine", "errors", "families", "flow", "gateway",
    "gpu", "language_names", "lm", "local", "manifest", "metrics", "onnx", "process", "serving", "settings",
    "speakable", "supervisor", "text", "token2wav", "vocoder", "voice",
)  # fmt: skip
"""Packages and modules that a machine without torch runs: a server on a CPU, its clients, its voices."""
WITH_TORCH = {
    "alignment.__main__", "alignment.calibration", "alignment.dependence", "checkpoint.as_torch",
    "engine.runtimes.torch_graphs", "engine.runtimes.torch_runtime",
    "flow.kernels", "flow.torch",
    "gpu.cuda_graphs", "gpu.kernels", "gpu.memory", "gpu.partitions.division",
    "gpu.partitions.partition",
    "gpu.transfer", "lm.engines.tensorrt_llm", "lm.engines.torch", "lm.engines.vllm",
    "lm.kernels", "lm.torch",
    "token2wav.chunked_token2wav", "token2wav.loading", "vocoder.kernels", "vocoder.torch",
}  # fmt: skip
"""What of them is there for torch: it reads weights for it, or makes and writes them."""


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
    imports = imports_of_folders()
    assert imports["serving.speech"] >= {"voice", "settings"}
    assert {folder for folder in imports if folder in reached(folder, imports)} == set()


def test_page_lists_the_folders_from_the_top_down() -> None:
    """Each imports what stands in its row or below it, and no folder is missing."""
    page = (ROOT / "docs" / "request.md").read_text("utf-8")
    rows = re.findall(rf"^\| (`{LIBRARY}/[^|]*) \|[^|]*\|$", page, re.MULTILINE)
    folders = [re.findall(r"(\w+)/`", row) for row in rows]
    row_of = {folder: number for number, row in enumerate(folders) for folder in row}
    imports = {
        (folder.split(".")[0], other.split(".")[0])
        for folder, others in imports_of_folders().items()
        for other in others
    }
    houses = {each for pair in imports for each in pair if (ROOT / LIBRARY / each).is_dir()}
    assert houses == row_of.keys()
    upwards = [(a, b) for a, b in imports if a in houses and b in houses and row_of[a] > row_of[b]]
    assert upwards == []


def imports_of_folders() -> dict[str, set[str]]:
    """Folders of the library, and those that their own files import.

    Entry points (``__main__.py``) and imports for type checkers aside. A file in no folder counts as one.
    """
    imports: dict[str, set[str]] = defaultdict(set)
    for path in (ROOT / LIBRARY).rglob("*.py"):
        if path.name != "__main__.py":
            folder = folder_of(module_of(path))
            modules = imported_modules(ast.parse(path.read_text("utf-8")))
            imports[folder] |= {folder_of(module) for module in modules} - {folder}
    return imports


def folder_of(module: str) -> str:
    path = Path(*module.split("."))
    own = path if (ROOT / LIBRARY / path).is_dir() or len(path.parts) == 1 else path.parent
    return ".".join(own.parts)


def imported_modules(module: ast.Module) -> set[str]:
    """Modules of the library that one imports anywhere, without the name of the library."""
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
    inner = [name.removeprefix(f"{LIBRARY}.") for name in names if name.startswith(f"{LIBRARY}.")]
    return {name if is_module(name) else name.rpartition(".")[0] for name in inner} - {""}


def is_module(name: str) -> bool:
    path = ROOT / LIBRARY / Path(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


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


def test_packages_of_a_machine_without_torch_import_none() -> None:
    """At import time, by whatever way; what a function imports is imported where torch computes."""
    modules = imports_of_modules()
    named = {module for module in modules if is_within(module, WITHOUT_TORCH)}
    assert [place for place in WITHOUT_TORCH if not any(is_within(module, [place]) for module in named)] == []
    ways = {module: way for module in named if (way := way_to_torch(module, modules))}
    apart = {module for module in named if is_within(module, WITH_TORCH)}
    assert {module: ways[module] for module in ways.keys() - apart} == {}
    assert [place for place in WITH_TORCH if not any(is_within(module, [place]) for module in ways)] == []


def imports_of_modules() -> dict[str, set[str]]:
    """Modules by name, without that of the library, and what each imports when it is imported itself."""
    paths = {module_of(path): path for path in (ROOT / LIBRARY).rglob("*.py")}
    return {
        module: {
            found.removeprefix(f"{LIBRARY}.")
            for name in names_at_import(ast.parse(path.read_text("utf-8")))
            for found in (name, name.rpartition(".")[0])
        }
        for module, path in paths.items()
    }


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / LIBRARY).with_suffix("").parts).removesuffix(".__init__")


def names_at_import(node: ast.AST) -> list[str]:
    """What is imported outside of functions: modules, or names in them."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or is_for_type_checkers(node):
        return []
    return [name for inner in ast.iter_child_nodes(node) for name in names_at_import(inner)]


def is_within(module: str, places: Iterable[str]) -> bool:
    return any(module == place or module.startswith(f"{place}.") for place in places)


def way_to_torch(module: str, modules: Mapping[str, set[str]]) -> list[str]:
    """Modules by which one imports torch, that one first; empty when it doesn't."""
    ways = {module: [module]}
    waiting = [module]
    while waiting:
        current = waiting.pop()
        for name in [*modules[current], *packages_of(current)]:
            if name == "torch" or name.startswith("torch."):
                return [*ways[current], "torch"]
            if name in modules and name not in ways:
                ways[name] = [*ways[current], name]
                waiting.append(name)
    return []


def packages_of(module: str) -> list[str]:
    """The packages around a module, whose own code is run before it."""
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]
