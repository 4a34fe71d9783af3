"""The requirements that the environment script installs: versions, hashes, and that they fit together."""

from __future__ import annotations

import ast
import itertools
import re
from importlib import metadata
from pathlib import Path

import pytest
import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
COMPILED = ("cpu", "torch", "front", "test", "fleet", "dynamo", "sbom", "gpu")

DIRECT = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[\w.]+)  # \w.+")


LOCKED = re.compile(r"(?P<name>[\w.-]+)(\[\w+\])?([<>]=?[\w.<>=,]+,)?==(?P<version>[\w.]+)(  # .+)?")


def read(path: Path, pattern: re.Pattern[str]) -> dict[str, str]:
    """Versions by normalised name of every line that is no comment."""
    lines = [
        line.removesuffix(" \\")
        for line in path.read_text().splitlines()
        if line and not line.lstrip().startswith(("#", "-r", "--hash=sha256:"))
    ]
    matches = [pattern.fullmatch(line) for line in lines]
    assert all(matches), f"{path.name} holds a line that is not read"
    return {canonicalize_name(match["name"]): match["version"] for match in matches}


def direct(part: str) -> dict[str, str]:
    source = "torch" if part == "gpu" else part
    return read(ROOT / "requirements" / f"{source}.in", DIRECT)


def pins(part: str) -> dict[str, str]:
    """Of torch itself, which is in no lock file, as its .in file has it."""
    locked = read(ROOT / "requirements" / f"{part}.txt", LOCKED)
    return locked | direct(part) if part == "torch" else locked


@pytest.mark.parametrize("part", COMPILED)
def test_direct_dependencies_are_locked_at_their_version_and_say_what_they_are_for(part):
    assert direct(part).items() <= pins(part).items()


@pytest.mark.parametrize("part", COMPILED)
def test_every_locked_package_has_hashes_and_torch_is_locked_for_gpus_alone(part):
    """An index with CPU builds of torch has other hashes; all else is the same file everywhere."""
    text = (ROOT / "requirements" / f"{part}.txt").read_text()
    locked = re.findall(r"^[\w.-]+(?:\[\w+\])?==\S+", text, re.MULTILINE)
    hashed = re.findall(r"^(\S+==\S+)(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n    #", text, re.MULTILINE)
    assert hashed == locked
    assert any(pin.startswith("torch==") for pin in locked) is (part == "gpu")


def test_files_agree_on_versions():
    cpu, nvidia = map(pins, ("cpu", "nvidia"))
    parts = (cpu, *map(pins, ("torch", "gpu", "front", "test", "fleet", "dynamo")))
    for one, other in itertools.combinations(parts, 2):
        assert {name: other[name] for name in other.keys() & one.keys()}.items() <= one.items()
    assert nvidia.items() <= cpu.items()
    assert pins("nvidia-trtllm").items() <= cpu.items()


def test_locked_versions_are_all_that_the_packages_need():
    locked = pins("cpu") | pins("torch") | pins("front") | pins("test") | pins("fleet")
    text = (ROOT / "requirements" / "uv.toml").read_text()
    described = {entry["name"] for entry in tomllib.loads(text)["dependency-metadata"]}
    for name in locked.keys() - described:
        for requirement in map(Requirement, metadata.requires(name) or []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                version = locked.get(canonicalize_name(requirement.name))
                assert version, f"{name} needs {requirement}"
                assert requirement.specifier.contains(version, prereleases=True), (
                    f"{name} needs {requirement}"
                )


@pytest.mark.parametrize("part", COMPILED)
def test_lock_files_leave_the_package_index_to_the_machine(part):
    text = (ROOT / "requirements" / f"{part}.txt").read_text()
    assert "://" not in text
    assert "--" not in text.replace("--hash=sha256:", "")


def test_a_cpu_needs_no_torch():
    assert "torch" not in pins("cpu") | pins("front")


def test_container_keeps_its_own_torch_and_numpy():
    assert not pins("nvidia").keys() & {"torch", "numpy", "nvidia-pytriton"}


def test_kernels_are_launched_quickly_with_the_triton_language_that_torch_brings():
    """``gpu/kernels/launch.py`` knows its launcher. The module is read: importing it needs a GPU's torch."""
    brought = re.search(r"^torch==.*triton==(\S+)", (ROOT / "requirements" / "torch.in").read_text(), re.M)
    launch = ast.parse((ROOT / "cosyvoice_runtime" / "gpu" / "kernels" / "launch.py").read_text())
    constants = {
        ast.unparse(node.targets[0]): ast.literal_eval(node.value)
        for node in launch.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.Tuple)
    }
    assert constants["PINNED"] == brought[1]
    assert brought[1].startswith(constants["KNOWN"])
    listed = [Requirement(text) for text in metadata.requires("torch")]
    # PyPI's build of torch lists it, a CPU build does not.
    for pin in [each for each in listed if each.name == "triton"]:
        assert pin.specifier.contains(brought[1])
