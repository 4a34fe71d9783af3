"""What holds for each package as a whole."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = "cosyvoice_runtime"
WITHOUT_TORCH = (
    "arrays", "audio", "checkpoint", "cuda_errors", "errors", "event_loop", "gateway", "metrics", "onnx_cpu",
    "nvidia", "onnx_memory",
    "pipeline", "serving.extractors", "serving.gpu_shifts", "serving.host",
    "serving.lm.scheduler", "serving.served_family", "serving.speech", "serving.token2wav",
    "serving.triton", "settings", "speakable", "speed", "supervisor", "text", "voice", "wave",
)  # fmt: skip
"""Packages and modules that a machine without torch runs: a server on a CPU, its clients, its voices."""
WITH_TORCH = {
    "checkpoint.as_torch", "checkpoint.huggingface", "checkpoint.safetensors_writer",
    "pipeline.chunked_token2wav", "pipeline.token2wav_families",
    "serving.token2wav.device", "serving.token2wav.torch_graphs", "serving.token2wav.torch_memory",
    "serving.token2wav.torch_runtime", "serving.token2wav.torch_token2wav",
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
