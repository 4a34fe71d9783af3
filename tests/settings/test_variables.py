"""Variables that Kubernetes and Docker set beside ours: told apart by their values."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings import Machine, Settings
from cosyvoice_runtime.settings.repository import render

ROOT = Path(__file__).parents[2]


def service(
    name: str, address: str = "10.96.14.7", port: int = 8080, protocol: str = "tcp"
) -> dict[str, str]:
    """What Kubernetes sets in every container for a Service (pkg/kubelet/envvars, ``FromServices``)."""
    prefix = name.upper().replace("-", "_")
    url = f"{protocol}://[{address}]:{port}" if ":" in address else f"{protocol}://{address}:{port}"
    one = f"{prefix}_PORT_{port}_{protocol.upper()}"
    return {
        f"{prefix}_SERVICE_HOST": address,
        f"{prefix}_SERVICE_PORT": str(port),
        f"{prefix}_SERVICE_PORT_HTTP": str(port),
        f"{prefix}_PORT": url,
        one: url,
        f"{one}_PROTO": protocol,
        f"{one}_PORT": str(port),
        f"{one}_ADDR": address,
    }


LINKED = {
    "COSYVOICE_NAME": "/front/cosyvoice",
    "COSYVOICE_PORT": "tcp://172.17.0.2:8000",
    "COSYVOICE_PORT_8000_TCP": "tcp://172.17.0.2:8000",
    "COSYVOICE_PORT_8000_TCP_START": "tcp://172.17.0.2:8000",
    "COSYVOICE_PORT_8003_TCP_END": "tcp://172.17.0.2:8003",
    "COSYVOICE_PORT_8000_TCP_PORT_START": "8000",
    "COSYVOICE_ENV_LANG": "C.UTF-8",
    "COSYVOICE_ENV_COSYVOICE_SETTINGS": "deploy/cpu.toml",
}
"""Docker's variables for ``--link server:cosyvoice``."""


@pytest.mark.parametrize(
    "variables",
    [
        service("cosyvoice"),
        service("cosyvoice-front"),
        service("cosyvoice-grpc", port=8001),
        service("cosyvoice-http", "fd00:10:96::e07", 8000),
        service("cosyvoice-settings"),
        service("cosyvoice--front"),
        service("cosyvoice", protocol="udp"),
        service("cosyvoice") | service("cosyvoice-front") | service("cosyvoice-token2wav"),
        LINKED,
    ],
    ids=lambda variables: next(iter(variables)),
)
def test_addresses_of_other_containers_are_ignored_with_one_line(variables, caplog):
    with caplog.at_level(logging.INFO):
        assert Settings.read(environment=variables) == Settings()
    (line,) = caplog.messages
    assert all(name in line for name in variables)


def test_settings_beside_a_service_are_read():
    given = {"COSYVOICE_HTTP_PORT": "9000", "COSYVOICE_FRONT__PORT": "9080"}
    settings = Settings.read(environment=service("cosyvoice") | service("cosyvoice-front") | given)
    assert (settings.server.http_port, settings.front.port) == (9000, 9080)
    assert Settings.read(environment={"COSYVOICE_PORT": "9080"}).front.port == 9080


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("COSYVOICE_SERVICE_HOTS", "10.0.0.1"),
        ("COSYVOICE_SERVER_PORT", "8000"),
        ("COSYVOICE_SERVICE_HOST", "not an address"),
        ("COSYVOICE_SERVICE_PORT", "http"),
        ("COSYVOICE_PORT_8080_TCP_ADDRESS", "10.0.0.1"),
        ("COSYVOICE_PORT_TCP", "tcp://10.0.0.1:8080"),
        ("COSYVOICE_FRONT_PORT", "8080"),
        ("COSYVOICE_FRONT_PORT", "http://10.0.0.1:8080"),
        ("COSYVOICE_ENV_LANG", "C.UTF-8"),
        ("COSYVOICE_NAME", "/front/cosyvoice"),
        ("COSYVOICE_TREADS", "tcp://10.0.0.1:8080"),
    ],
)
def test_what_only_resembles_them_is_refused(name, value):
    with pytest.raises(InvalidInput, match="there is no such setting"):
        Settings.read(environment={name: value})


def test_setting_with_a_wrong_value_beside_a_service_is_refused():
    with pytest.raises(InvalidInput, match=r"front\.port: 'eighty'"):
        Settings.read(environment=service("cosyvoice-front") | {"COSYVOICE_PORT": "eighty"})


@pytest.mark.parametrize("command", ["cosyvoice_front", "cosyvoice_runtime.supervisor"])
def test_processes_say_what_they_ignore(command, tmp_path):
    """The front goes on to its next setting, the supervisor to its repository."""
    arguments = [tmp_path] if command.endswith("supervisor") else ["front.api_keys_file=/nowhere"]
    answer = subprocess.run(
        [sys.executable, "-m", command, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | service("cosyvoice"),
    )
    assert answer.stderr.count("COSYVOICE_SERVICE_HOST") == 1
    assert "there is no such setting" not in answer.stderr


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8"])
@pytest.mark.parametrize("name", ["设置.toml", "a b'\"&;$x.toml"])
def test_file_of_settings_is_read_whatever_its_path_and_the_locale(tmp_path, locale, name):
    (tmp_path / name).write_text('[cosyvoice2]\ndefault_voice = "小明"\n', encoding="utf-8")
    read = "import os; from cosyvoice_runtime.settings import Settings\n"
    read += "print(ascii(Settings.read([], os.environ).cosyvoice2.default_voice))"
    variables = {"LC_ALL": locale, "COSYVOICE_SETTINGS": str(tmp_path / name), "PATH": os.environ["PATH"]}
    answer = subprocess.run([sys.executable, "-c", read], env=variables, capture_output=True, text=True)
    assert (answer.stdout, answer.stderr) == (f"{'小明'!a}\n", "")


def test_path_beyond_ascii_that_a_model_would_read_is_refused_by_its_setting(tmp_path):
    (tmp_path / "检").mkdir()
    settings = Settings.read([f"voices_dir={tmp_path / '检'}", "device=cpu"]).resolved(Machine.here())
    with pytest.raises(
        InvalidInput, match=r"cosyvoice2\.voices_dir: .* a path in ASCII, which may be a link"
    ):
        render(ROOT / "model_repo", settings)
    (tmp_path / "link").symlink_to(tmp_path / "检")
    linked = Settings.read([f"voices_dir={tmp_path / 'link'}", "device=cpu"]).resolved(Machine.here())
    assert render(ROOT / "model_repo", linked)
