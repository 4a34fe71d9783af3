"""The environment script without installing anything, and the requirements it installs."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[\w.]+)  # \w.+")


def load_script():
    spec = importlib.util.spec_from_file_location("environment", ROOT / "scripts" / "environment.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


environment = load_script()


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
    matches = [LINE.fullmatch(line) for line in lines if line and not line.startswith("#")]
    assert all(matches), "every requirement is pinned and says what it is for"
    return {match["name"]: match["version"] for match in matches}


def test_files_agree_on_versions():
    cpu, test, nvidia = pins("cpu"), pins("test"), pins("nvidia")
    assert not cpu.keys() & test.keys()
    assert nvidia.items() <= cpu.items()


def test_container_keeps_its_own_torch_and_numpy():
    assert not pins("nvidia").keys() & {"torch", "numpy", "nvidia-pytriton"}


def test_python_without_venv_and_libpython_is_told_the_packages():
    facts = {"version": "3.11", "venv": False, "library": False}
    assert environment._missing(facts) == [
        "venv (on Debian: apt install python3.11-venv)",
        "libpython (on Debian: apt install libpython3.11)",
    ]


def test_python_of_another_version_is_refused():
    facts = {"version": "3.9", "venv": True, "library": True}
    assert environment._missing(facts) == ["the right version (it is 3.9)"]


def test_python_that_is_not_there_is_named():
    with pytest.raises(environment.SetupError, match="/nowhere/python can't be run: No such file"):
        environment.find_python("/nowhere/python")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("Max retries exceeded with url: /simple/torch/", "the package index can't be reached"),
        ("ERROR: No matching distribution found for torch==9", "the package index does not have a package"),
        ("something else", "pip failed\n    something else"),
    ],
)
def test_failure_of_pip_is_put_into_words(output, reason):
    assert reason in environment._reason(output, "pip failed")


def test_up_to_date_environment_is_left_alone(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(environment, "check_platform", lambda venv: pytest.fail(f"{venv} is set up again"))
    stamp = f'{{"cpu": "{environment._digest("cpu")}", "test": "{environment._digest("test")}"}}'
    (tmp_path / "requirements.json").write_text(stamp)
    environment.make(tmp_path, ["cpu"], None)
    environment.make(tmp_path, ["cpu", "test"], None)
    assert capsys.readouterr().out.count("up to date, nothing to do") == 2


def test_changed_requirements_are_installed_again(tmp_path, monkeypatch):
    installed = []
    monkeypatch.setattr(environment, "check_platform", lambda venv: None)
    monkeypatch.setattr(environment, "install", lambda venv, parts: installed.append((venv, parts)))
    monkeypatch.setattr(environment, "_run", lambda *arguments, **options: None)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pip").touch()
    (tmp_path / "requirements.json").write_text('{"cpu": "of another day"}')
    environment.make(tmp_path, ["cpu"], None)
    environment.make(tmp_path, ["cpu"], None)
    assert installed == [(tmp_path, ["cpu"])]
