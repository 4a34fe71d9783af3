"""The units of systemd: what they name exists, and they leave the server its time and room to write."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from compose_file import ROOT

from cosyvoice_runtime.settings import Settings

FOLDER = ROOT / "deploy" / "systemd"
UNITS = ("cosyvoice-server", "cosyvoice-front")
PLACES = {"%S": "/var/lib", "%L": "/var/log", "%C": "/var/cache"}
CHECKOUT = "/opt/cosyvoice"
TOOLS = {"HOME", "PATH", "PYTHONUNBUFFERED", "XDG_CACHE_HOME", "TRITON_CACHE_DIR"}
"""Variables of others."""
MOST_EXPOSURE = 50
"""Tenths of systemd's own points for what a unit may do; without hardening it is 96."""


def directives(unit: str) -> dict[str, list[str]]:
    """What a unit says, each name with its values."""
    found: dict[str, list[str]] = {}
    for line in (FOLDER / f"{unit}.service").read_text("utf-8").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def environment(unit: str) -> dict[str, str]:
    """The variables of a unit, and of the sample of its file."""
    said = directives(unit)
    pairs = [pair for value in said["Environment"] for pair in shlex.split(value)]
    [file] = said["EnvironmentFile"]
    lines = (FOLDER / Path(file).name).read_text("utf-8").splitlines()
    pairs += [line for line in lines if not line.startswith("#")]
    variables = dict(pair.split("=", 1) for pair in pairs)
    for name, value in variables.items():
        for place, path in PLACES.items():
            variables[name] = variables[name].replace(place, path)
        assert "%" not in variables[name], value
    return variables


def settings(unit: str) -> Settings:
    given = {name: value for name, value in environment(unit).items() if name.startswith("COSYVOICE_")}
    if "COSYVOICE_SETTINGS" in given:
        given["COSYVOICE_SETTINGS"] = str(ROOT / given["COSYVOICE_SETTINGS"])
    return Settings.read(environment=given)


@pytest.mark.parametrize("unit", UNITS)
def test_variables_of_a_unit_are_settings_or_known_to_run_sh(unit):
    settings(unit)  # which refuses what is no setting
    others = {name for name in environment(unit) if not name.startswith("COSYVOICE_")} - TOOLS
    used = set(re.findall(r"\$\{?(\w+)", (ROOT / "run.sh").read_text("utf-8")))
    assert others <= used


def test_server_writes_where_its_unit_lets_it():
    said = directives("cosyvoice-server")
    places = [
        f"{folder}/{said[name][0]}"
        for name, folder in (
            ("StateDirectory", "/var/lib"),
            ("LogsDirectory", "/var/log"),
            ("CacheDirectory", "/var/cache"),
        )
    ]
    variables, read = environment("cosyvoice-server"), settings("cosyvoice-server")
    written = [
        *(variables[name] for name in ("HOME", "CHECKPOINT", "MODEL_REPO")),
        *(variables[name] for name in ("XDG_CACHE_HOME", "TRITON_CACHE_DIR")),
        *(read.cosyvoice2.voices_dir, read.server.log_file, read.server.audit_file),
        *(read.tensorrt_llm.engine_dir, read.token2wav.backend_dir, read.audio_tokenizer.backend_dir),
    ]
    assert [path for path in written if not any(Path(path).is_relative_to(place) for place in places)] == []


def test_front_writes_the_server_s_voices_and_its_own_log_alone():
    said, read = directives("cosyvoice-front"), settings("cosyvoice-front").front
    assert said["ReadWritePaths"] == [f"-{read.voices_dir}"]
    assert read.voices_dir == str(settings("cosyvoice-server").cosyvoice2.voices_dir)
    assert Path(read.audit_file).parent == Path("/var/log", *said["LogsDirectory"])
    assert not said.keys() & {"StateDirectory", "CacheDirectory"}


def test_units_leave_time_to_drain_and_the_signal_to_the_supervisor():
    server, front = directives("cosyvoice-server"), directives("cosyvoice-front")
    section = settings("cosyvoice-server").server
    assert server["KillMode"] == ["mixed"]
    assert int(server["TimeoutStopSec"][0]) > section.drain_timeout_s + section.exit_timeout_s + 10
    section = settings("cosyvoice-front").front
    assert int(front["TimeoutStopSec"][0]) > section.leave_s + section.drain_timeout_s + 10


@pytest.mark.parametrize("unit", UNITS)
def test_units_are_hardened(unit):
    said = directives(unit)
    assert said["User"] == ["cosyvoice"]
    assert said["NoNewPrivileges"] == said["ProtectHome"] == said["PrivateTmp"] == ["yes"]
    assert said["ProtectSystem"] == ["strict"]
    assert said["CapabilityBoundingSet"] == [""]
    assert said["WorkingDirectory"] == [CHECKOUT]


def test_server_keeps_its_gpus():
    """ProtectClock allows the clock's device before systemd 253, and by that forbids all others."""
    hiding = {"PrivateDevices", "ProtectClock", "DeviceAllow", "DevicePolicy"}
    assert not directives("cosyvoice-server").keys() & hiding


@pytest.fixture
def systemd_analyze() -> str:
    path = shutil.which("systemd-analyze")
    if path is None:
        pytest.skip("needs systemd-analyze: apt install systemd")
    return path


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_takes_the_unit_and_calls_it_no_more_exposed_than_it_has_to_be(
    unit, systemd_analyze, tmp_path
):
    """With this checkout in place of the one in /opt, as systemd looks whether the command is there."""
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to("/bin/true")
    text = (FOLDER / f"{unit}.service").read_text("utf-8").replace(CHECKOUT, str(tmp_path))
    written = tmp_path / f"{unit}.service"
    written.write_text(text, encoding="utf-8")
    for command in (
        ["verify", "--man=no", "--recursive-errors=no", str(written)],
        ["security", "--offline=yes", f"--threshold={MOST_EXPOSURE}", "--no-pager", str(written)],
    ):
        done = subprocess.run([systemd_analyze, *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert unit not in done.stderr  # what it warns of
