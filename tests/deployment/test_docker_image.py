"""The image: pinned, complete, without root, and started by what also starts without a container."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from types import ModuleType

import docker_image
import pytest
from docker_image import FINAL, ROOT, final, instructions, of

from cosyvoice_runtime.serving.lm.engines.tensorrt_llm.pinned import CONTAINER as TRTLLM_CONTAINER
from cosyvoice_runtime.serving.lm.engines.vllm.installed import CONTAINER as VLLM_CONTAINER


def pip_installs() -> list[list[str]]:
    """Arguments of every ``pip install``."""
    commands = [command for entry in of("RUN") for command in entry.values[0].split("&&")]
    words = [shlex.split(command) for command in commands if "pip install" in command]
    return [command[command.index("install") + 1 :] for command in words]


def test_containers_are_the_ones_that_the_engines_are_written_for():
    assert docker_image.bases()["nvidia"] == TRTLLM_CONTAINER
    assert docker_image.bases(FLAVOUR="vllm")["nvidia"] == VLLM_CONTAINER


@pytest.mark.parametrize("base", ["nvidia", "cpu"])
def test_every_image_is_pinned(base):
    stages = docker_image.bases(BASE=base)
    assert stages[FINAL] == base
    images = {image for image in stages.values() if image not in stages}
    assert len(images) == 2
    for image in images:
        assert re.search(r":(\d+\.\d+\.\d+-[\w-]+@sha256:[0-9a-f]{64}|\d+\.\d+-\w+-python-py3)$", image), (
            image
        )


def test_every_copied_file_exists_and_is_sent_to_the_builder():
    for copy in of("COPY"):
        if copy.flags:
            [stage] = copy.flags
            assert stage.removeprefix("--from=") in docker_image.bases()
            continue
        for source in copy.values[:-1]:
            assert (ROOT / source).exists(), source
            assert source == "." or docker_image.in_context(source), source


def test_what_the_server_needs_is_in_the_image_and_what_it_makes_is_not():
    for path in ("run.sh", "model_repo/token2wav/config.pbtxt", "scripts/health.py", "deploy/gpu.toml"):
        assert docker_image.in_context(path), path
    for path in (".git", ".env", "checkpoints/a", "engines/b", "tests/conftest.py", ".venv/bin/python"):
        assert not docker_image.in_context(path), path
    assert not docker_image.in_context("cosyvoice_runtime/__pycache__/errors.pyc")


def test_nothing_is_installed_unpinned():
    assert pip_installs()
    for arguments in pip_installs():
        assert "--no-deps" in arguments
        constrained = "--constraint" in arguments
        named = [word for word in arguments if not word.startswith("-") and not word.endswith(".txt")]
        assert all(constrained or "==" in word or word.endswith(".whl") for word in named), arguments


def test_nothing_is_fetched_by_other_means():
    for entry in of("RUN"):
        assert not re.search(r"\b(git|curl|wget|apt-get|apt|conda)\b", entry.values[0])


def test_server_runs_without_root():
    [user] = of("USER")
    assert (user.stage, user.values) == (FINAL, ("10001",))
    assert "useradd --uid 10001" in final("RUN").values[0]


def test_container_starts_with_all_stages_and_installs_nothing():
    *_, last = instructions()
    assert last == (FINAL, "CMD", (), ("bash", "run.sh", "0", "3"))
    assert docker_image.environment()["VENV"] == "system"


def test_health_check_is_an_inference_with_time_to_start():
    check = final("HEALTHCHECK")
    assert check.values == ("CMD", "python3", "scripts/health.py")
    assert {flag.partition("=")[0] for flag in check.flags} >= {"--start-period", "--timeout", "--interval"}
    assert "Probe.read" in (ROOT / "scripts" / "health.py").read_text("utf-8")


@pytest.fixture
def script() -> ModuleType:
    path = ROOT / "scripts" / "container_packages.py"
    spec = importlib.util.spec_from_file_location("container_packages", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_package_that_the_container_has_stays(script, tmp_path, monkeypatch, capsys):
    present = {"tokenizers": "0.22.1", "PyYAML": "6.0.3"}
    installed: list[list[str]] = []
    monkeypatch.setattr(script, "installed", present.get)
    monkeypatch.setattr(script, "install", lambda packages: installed.append(packages) or 0)
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(
        "# why\n\ntokenizers==0.23.3  # text\nPyYAML==6.0.3  # files\nwetext==0.1.8  # numbers\n"
    )
    assert script.main([str(requirements)]) == 0
    assert installed == [["wetext==0.1.8"]]
    told = capsys.readouterr().out
    assert "tokenizers 0.22.1 stays, pinned here is 0.23.3\n" in told
    assert "PyYAML 6.0.3 stays\n" in told


def test_requirement_that_pins_nothing_is_an_error(script, tmp_path):
    path = tmp_path / "requirements.txt"
    path.write_text("wetext>=0.1\n")
    with pytest.raises(SystemExit, match=r"wetext>=0\.1 is not pinned"):
        script.main([str(path)])


def test_real_requirements_are_read_and_real_packages_found(script):
    pins = dict(script.pins(Path(ROOT / "requirements" / "nvidia.txt")))
    assert pins["safetensors"]
    assert script.installed("pytest")
    assert script.installed("no-such-package-of-ours") is None
