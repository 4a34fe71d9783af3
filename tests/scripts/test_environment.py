"""The environment script without installing anything."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]


def load_script(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)  # as beside a script that is run
    spec.loader.exec_module(module)
    return module


base_python = load_script("base_python")


environment = load_script("environment")


def parts(*arguments: str) -> list[str]:
    return environment.wanted_parts(environment.parser().parse_args(arguments))


def test_torch_is_left_out_when_asked_but_of_the_tests():
    assert parts("--no-torch") == ["cpu"]
    assert "torch" in parts("--no-torch", "--test")


def test_python_without_venv_and_libpython_is_told_the_packages():
    facts = {"version": "3.11", "venv": False, "library": False}
    assert base_python.lacking(facts) == [
        "venv (on Debian: apt install python3.11-venv)",
        "libpython (on Debian: apt install libpython3.11)",
    ]


def test_python_of_another_version_is_refused():
    facts = {"version": "3.9", "venv": True, "library": True}
    assert base_python.lacking(facts) == ["the right version (it is 3.9)"]


def test_python_that_is_not_there_is_named():
    with pytest.raises(environment.SetupError, match="/nowhere/python can't be run: No such file"):
        base_python.find_python("/nowhere/python")


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
    assert reason in environment.reason_of(output, "pip failed")


def test_up_to_date_environment_is_left_alone(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(environment, "check_platform", lambda: pytest.fail("it is set up again"))
    stamp = f'{{"cpu": "{environment.digest_of("cpu")}", "test": "{environment.digest_of("test")}"}}'
    (tmp_path / "requirements.json").write_text(stamp)
    environment.make(tmp_path, ["cpu"], None)
    environment.make(tmp_path, ["cpu", "test"], None)
    assert capsys.readouterr().out.count("up to date, nothing to do") == 2


def test_changed_requirements_are_installed_again(tmp_path, monkeypatch):
    installed = []
    monkeypatch.setattr(environment, "check_platform", lambda: None)
    monkeypatch.setattr(
        environment, "install", lambda venv, parts, installer: installed.append((venv, parts))
    )
    monkeypatch.setattr(environment, "run", lambda *arguments, **options: None)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pip").touch()
    (tmp_path / "requirements.json").write_text('{"cpu": "of another day"}')
    environment.make(tmp_path, ["cpu"], None)
    environment.make(tmp_path, ["cpu"], None)
    assert installed == [(tmp_path, ["cpu"])]


def program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def venv(tmp_path, monkeypatch):
    """An environment whose pip says how it was called, on a machine without uv; pip can fetch one."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/usr/bin:/bin")
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    uv = f'echo "uv index=$UV_DEFAULT_INDEX links=$UV_FIND_LINKS: $*" >> {tmp_path}/calls'
    program(tmp_path / "uv", uv)
    program(
        tmp_path / "venv" / "bin" / "python",
        f"""
case "$*" in
  *"config list"*) echo "global.index-url='http://mirror/simple'"
    [ -e {tmp_path}/folders ] && echo ":env:.find-links='/a /b'"; exit 0 ;;
  *" {environment.UV}") [ -e {tmp_path}/no-uv ] && echo "No matching distribution found for uv" && exit 1
    cp {tmp_path}/uv {tmp_path}/venv/bin/uv ;;
esac
echo "pip: $*" >> {tmp_path}/calls
""",
    )
    return tmp_path / "venv"


def calls(venv: Path) -> list[str]:
    return (venv.parent / "calls").read_text().splitlines()


def installed_by_pip(venv: Path) -> int:
    """How often pip has installed something, after which all is compiled at once."""
    *installed, compiled = calls(venv)
    assert all(line.startswith("pip: -m pip install --no-compile ") for line in installed)
    assert compiled == f"pip: -m compileall -qq -j 0 {venv / 'lib'}"
    return len(installed)


def free_gib(monkeypatch: pytest.MonkeyPatch, gib: float) -> None:
    monkeypatch.setattr(environment.shutil, "disk_usage", lambda _: SimpleNamespace(free=gib * 2**30))


UV_LISTS = "Would install 3 packages\n + nvidia-cudnn-cu13==9.20.0.48\n + torch==2.13.0\n"


UV_LISTS_A_CPUS = "Would install 1 package\n + torch==2.13.0+cpu\n"


def reported(*requirements: str) -> str:
    """What pip reports of a build of torch, whose description may tell of NVIDIA too."""
    metadata = {"description": "see nvidia-container-toolkit", "requires_dist": ["sympy", *requirements]}
    return json.dumps({"install": [{"metadata": metadata}]})


@pytest.mark.parametrize(
    ("name", "told", "enough_gib", "too_little_gib"),
    [
        ("uv", UV_LISTS, 6.6, "6.4 GiB free, 6.5 are needed: .* PIP_EXTRA_INDEX_URL"),
        ("uv", UV_LISTS_A_CPUS, 2.6, "2.4 GiB free, 2.5 are needed$"),
        ("pip", reported('nvidia-cudnn-cu13==9.20; platform_system == "Linux"'), 11.6, "11.5 are needed: "),
        ("pip", reported(), 3.1, "2.9 GiB free, 3 are needed$"),
    ],
)
def test_room_follows_the_build_of_torch_that_is_chosen(
    tmp_path, monkeypatch, name, told, enough_gib, too_little_gib
):
    """An index for other packages makes no CPU build, and an index of CPU builds alone does."""
    program(tmp_path / name, f"cat <<'END'\n{told}\nEND")
    installer = environment.Installer(name, [str(tmp_path / name)], dict(os.environ))
    free_gib(monkeypatch, enough_gib)
    environment.check_torch_room(installer, tmp_path)
    free_gib(monkeypatch, enough_gib - 0.2)
    with pytest.raises(environment.NoRoomError, match=too_little_gib):
        environment.check_torch_room(installer, tmp_path)


def test_index_that_can_not_be_asked_about_torch_is_told(tmp_path):
    program(tmp_path / "uv", "echo 'dns error' >&2; exit 2")
    installer = environment.Installer("uv", [str(tmp_path / "uv")], dict(os.environ))
    with pytest.raises(environment.SetupError, match="the package index can't be reached"):
        environment.check_torch_room(installer, tmp_path)


def test_no_room_for_torch_is_not_tried_with_pip(venv, monkeypatch):
    (venv.parent / "path").mkdir()
    program(venv.parent / "path" / "uv", "echo ' + nvidia-nccl-cu13==2.29.7'")
    free_gib(monkeypatch, 4)
    with pytest.raises(environment.NoRoomError, match=r"6.5 are needed"):
        environment.install(venv, ["cpu", "torch"])
    assert not (venv.parent / "calls").exists()


def test_room_for_torch_is_asked_for_once(venv, monkeypatch):
    """And never without torch."""
    asked = []
    monkeypatch.setattr(environment, "check_torch_room", lambda installer, venv: asked.append(installer.name))
    environment.install(venv, ["cpu"])
    environment.install(venv, ["cpu", "torch"])
    torch = venv / "lib" / "python3.11" / "site-packages" / "torch" / "__init__.py"
    torch.parent.mkdir(parents=True)
    torch.touch()
    environment.install(venv, ["cpu", "torch"])
    assert asked == ["uv"]


def test_uv_on_the_path_installs_from_where_pip_would(venv):
    """And is asked first what it would install."""
    (venv.parent / "path").mkdir()
    (venv.parent / "uv").rename(venv.parent / "path" / "uv")
    environment.install(venv, ["cpu", "torch"])
    assert [line.split(":")[0] for line in calls(venv)] == ["uv index=http"] * 4
    assert all("index=http://mirror/simple links=: pip install --python" in line for line in calls(venv))
    asked, others, torch, _ = calls(venv)
    assert asked.replace(" --dry-run", "") == torch
    assert torch.endswith("-r " + str(ROOT / "requirements" / "torch.in"))
    assert "--no-deps --require-hashes -r" in others


def test_all_but_torch_and_other_people_s_clients_are_held_to_their_hashes(venv, monkeypatch):
    monkeypatch.setattr(environment, "_install_for_node", lambda: None)
    environment.install(venv, ["cpu", "torch", "front", "test", environment.BINDINGS, environment.CLIENTS])
    hashed = [line for line in calls(venv) if "--require-hashes" in line]
    assert len(hashed) == 1
    assert re.findall(r"requirements/([\w.]+)", hashed[0]) == [
        "cpu.txt",
        "torch.txt",
        "front.txt",
        "test.txt",
    ]
    assert [line for line in calls(venv) if line.endswith("requirements/clients.txt")]


@pytest.mark.parametrize(
    "said",
    [
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
        "error: Failed to download `idna==3.20`\n  Caused by: Hash mismatch for `idna==3.20`",
    ],
)
def test_a_file_that_is_another_than_the_locked_one_is_told(said):
    told = environment.reason_of(said, "pip failed")
    assert told.startswith("pip failed: the package index has another file than the one that is locked here")


def test_settings_of_uv_itself_win_over_those_of_pip(venv, monkeypatch):
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://own/simple")
    (venv.parent / "folders").touch()
    environment.install(venv, ["cpu"], "uv")
    assert "index=http://own/simple links=/a,/b" in calls(venv)[-1]


def test_uv_is_fetched_where_there_is_none(venv):
    environment.install(venv, ["cpu", "test"])
    fetched, *installed = calls(venv)
    assert fetched.endswith(f"--no-deps {environment.UV}")
    assert [line.startswith("uv ") for line in installed] == [True] * 2


def test_pip_installs_where_it_looks_in_several_places_and_says_so(venv, capsys):
    (venv.parent / "folders").touch()
    environment.install(venv, ["cpu"])
    assert installed_by_pip(venv) == 2
    assert "pip is configured with find-links" in capsys.readouterr().out


def test_of_what_tests_need_nothing_is_compiled_before_they_import_it(venv):
    environment.install(venv, ["cpu", "test"], "pip")
    assert [line for line in calls(venv) if "--no-compile" not in line] == []


@pytest.mark.parametrize("broken", ["no-uv", "failing uv"])
def test_pip_installs_where_uv_can_not_and_says_so(venv, broken, capsys):
    if broken == "no-uv":
        (venv.parent / "no-uv").touch()
    else:
        program(venv / "bin" / "uv", "echo 'error sending request for url'; exit 2")
    environment.install(venv, ["cpu"])
    assert installed_by_pip(venv) == 2
    told = capsys.readouterr().out
    assert "uv can't do it, so pip does: " in told
    assert "the package index" in told


def test_uv_that_is_asked_for_and_fails_is_an_error(venv):
    (venv.parent / "no-uv").touch()
    with pytest.raises(environment.SetupError, match="pip failed: the package index does not have"):
        environment.install(venv, ["cpu"], "uv")
    assert not (venv.parent / "calls").exists()


def test_bindings_of_two_releases_lie_in_folders_of_their_own(venv):
    environment.install(venv, ["cpu", environment.BINDINGS], "pip")
    *_, older, newer, _ = calls(venv)
    for line in (older, newer):
        target, pin = line.split("--target ")[1].split()
        assert target == str(venv / "bindings" / pin.split("==")[1])
    assert older != newer


def test_pip_that_is_asked_for_installs_alone(venv):
    environment.install(venv, ["cpu"], "pip")
    assert installed_by_pip(venv) == 2
    assert not (venv / "bin" / "uv").exists()


HANGING_PYTHON = """#!/bin/sh
if [ "$1" = -I ]; then exec {python} "$@"; fi
echo began
exec sleep 600
"""


def test_interrupt_while_it_installs_is_a_line(tmp_path):
    python = tmp_path / "python3.11"
    python.write_text(HANGING_PYTHON.format(python=sys.executable))
    python.chmod(0o755)
    script = ROOT / "scripts" / "environment.py"
    command = [sys.executable, script, "--no-torch", "--venv", tmp_path / "venv", "--python", python]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as made:
        assert b"made with" in made.stdout.readline()
        os.killpg(made.pid, signal.SIGINT)
        error = made.communicate()[1]
    assert (made.returncode, error) == (
        130,
        b"environment: interrupted; the same command goes on with it\n",
    )


def test_environment_on_a_read_only_disk_is_a_line(tmp_path, capsys, monkeypatch):
    def make(*_):
        raise OSError(errno.EROFS, "Read-only file system", str(tmp_path))

    monkeypatch.setattr(environment, "make", make)
    assert environment.main(["--venv", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"Read-only file system: '{tmp_path}': --venv (VENV of run.sh) names another place" in said


def test_temporary_files_under_a_path_that_breaks_the_installer_are_refused_at_once(monkeypatch):
    monkeypatch.setattr(environment.tempfile, "tempdir", "/a b;'c'#模")
    environment.check_temporary()
    monkeypatch.setattr(environment.tempfile, "tempdir", "/a$b")
    with pytest.raises(base_python.SetupError, match=r"TMPDIR is '/a\$b': its path may have no '\$'"):
        environment.check_temporary()
