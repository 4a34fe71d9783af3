"""A server works wherever its files lie, and keeps nothing where files are removed by their age."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from cosyvoice_runtime import processes
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor import Server, shared_memory
from cosyvoice_runtime.supervisor.preflight import repository_problems

EVIL = "a b'\"&;touch made;$(touch made)`touch made`\n模型"
"""A folder's name with all that a shell acts upon."""
TMPFILES = shutil.which("systemd-tmpfiles")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of that name, in which everything lies and the server is started."""
    folder = tmp_path / EVIL
    folder.mkdir()
    for variable in ("TMPDIR", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(folder))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def server(repository: Path, folder: Path, settings: ServerSettings) -> Iterator[Server]:
    repository = repository.rename(folder / "repository")
    with Server(repository, settings.replace(log_file=folder / "server.log")) as server:
        yield server


def clean_by_age(folder: Path, rules: Path) -> None:
    """What a machine does to a folder of temporary files when everything in it is old."""
    (folder / "old").touch()
    if TMPFILES is None:
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    else:
        rules.write_text(f"e {folder} - - - 0\n")
        subprocess.run([TMPFILES, "--clean", rules], check=True)
    assert not (folder / "old").exists()


def test_paths_reach_no_shell(server, folder, count):
    assert count(server, "chain", 3).rest() == [0, 1, 2]
    assert not list(folder.parent.rglob("made"))


def test_model_that_dies_comes_back_after_temporary_files_were_removed(
    repository, settings, tmp_path, monkeypatch, count, eventually
):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", None)
    with Server(repository, settings) as server:
        clean_by_age(temporary, tmp_path / "rules.conf")
        for process in processes.session_members(server.session):
            if process.model == "chain":
                os.kill(process.pid, signal.SIGKILL)
        eventually(lambda: server.reloads["chain"] == 1)
        assert count(server, "chain", 3).rest() == [0, 1, 2]
        with urllib.request.urlopen(f"http://{server.metrics_url}/metrics") as page:
            assert b"chain" in page.read()


@pytest.mark.skipif(TMPFILES is None, reason="systemd-tmpfiles is not installed")
def test_no_rule_of_the_machine_removes_shared_memory_by_age():
    rules = subprocess.run([str(TMPFILES), "--cat-config"], capture_output=True, text=True, check=True)
    fields = [line.split() for line in rules.stdout.splitlines() if line and not line.startswith("#")]
    aged = [line[1] for line in fields if len(line) > 5 and line[5] != "-"]
    assert aged
    assert not [path for path in aged if path.startswith(str(shared_memory.DIRECTORY))]


@pytest.mark.parametrize("name", ["a b", "a;b", "$a", "模型", "-a", "a\nb"])
def test_model_whose_name_a_shell_would_act_upon_is_refused(repository, name):
    (repository / "chain").rename(repository / name)
    [problem] = repository_problems(repository)
    assert repr(str(repository / name)) in problem
    assert "a model's name has letters, digits, '.', '_' and '-' of ASCII alone" in problem
