"""A server works wherever its files lie, and keeps nothing where files are removed by their age."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from cosyvoice_runtime.process import processes
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.settings.repository import escape
from cosyvoice_runtime.supervisor import Server
from cosyvoice_runtime.supervisor.preflight import (
    SHARED_MEMORY,
    code_problems,
    not_writable,
    repository_problems,
)
from read_only import READ_ONLY

MODELS = Path(__file__).parent / "model_repo"
REMEDY = f"mount a volume or a tmpfs there that user {os.geteuid()} may write to, or name another place"
START = """
import sys
from pathlib import Path
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor import PreflightError, Server

ports = dict(http_port=0, grpc_port=0, metrics_port=0, model_metrics_port=0)
try:
    Server(Path(sys.argv[1]), ServerSettings(**ports, log_file=Path(sys.argv[2]))).start()
except PreflightError as error:
    print(error)
"""
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


def may_mount() -> bool:
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


def read_only(command: list[object], writable: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that can write to one folder, and to shared memory, alone."""
    shell = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", str(writable)]
    return subprocess.run([*shell, *map(str, command)], capture_output=True, text=True)


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
    assert not [path for path in aged if path.startswith(str(SHARED_MEMORY))]


@pytest.mark.parametrize("name", ["a b", "a;b", "$a", "模型", "-a", "a\nb"])
def test_model_whose_name_a_shell_would_act_upon_is_refused(repository, name):
    (repository / "chain").rename(repository / name)
    [problem] = repository_problems(repository)
    assert repr(str(repository / name)) in problem
    assert "a model's name has letters, digits, '.', '_' and '-' of ASCII alone" in problem


@pytest.mark.skipif(not may_mount(), reason="no right to mount")
def test_machine_that_is_read_only_says_what_to_mount(repository, tmp_path):
    (tmp_path / "writable").mkdir()
    command = [sys.executable, "-c", START, repository, tmp_path / "server.log"]
    answer = read_only(command, tmp_path / "writable")
    assert answer.stdout.splitlines() == [
        f"server.log_file writes to {tmp_path}, which can't be written: {REMEDY}",
        f"tritonserver writes to /tmp, which can't be written: {REMEDY}",
    ]


def test_folder_that_is_to_be_made_is_writable_where_the_one_around_it_is(tmp_path):
    assert not_writable("voices", tmp_path / "a" / "b") == []
    (tmp_path / "file").touch()
    [problem] = not_writable("voices", tmp_path / "file" / "voices")
    assert problem.startswith(f"voices writes to {tmp_path}/file/voices, which can't be written")


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a b", "a;b"])
def test_checkpoint_is_found_whatever_signs_its_path_has(repository, tmp_path, name):
    (tmp_path / name).mkdir()
    configuration = repository / "chain" / "config.pbtxt"
    for path, problems in ((tmp_path / name, 0), (tmp_path / f"{name}-other", 1)):
        line = f'parameters {{ key: "checkpoint_dir" value: {{ string_value: "{escape(str(path))}" }} }}\n'
        configuration.write_text((MODELS / "chain" / "config.pbtxt").read_text() + line)
        assert len(repository_problems(repository)) == problems


@pytest.mark.parametrize(
    ("executable", "count"), [("/opt/a b/python", 0), ("/opt/模型/python", 1), ("/opt/a:b/python", 1)]
)
def test_interpreter_that_models_could_not_find_is_named(executable, count):
    problems = code_problems(Path(executable))
    assert [problem.startswith(executable) for problem in problems] == [True] * count
