"""The smallest example's pods without a cluster: commands of their images with the variables of the chart.

Servers and fronts run without capabilities on a read-only system, in which the volumes alone can be written.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

import chart_image
import pytest
from chart_render import EVERYTHING, KEDA, ROOT, container, environment, example, merged, one

pytest.importorskip("tritonclient.grpc", reason="needs the environment of scripts/environment.py")

from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.preflight import ServerPorts
from eventually import eventually

VALUES = merged(
    example("cpu_demo_voice"), {"server": {"settings": {"cosyvoice2": {"max_inflight_utterances": 4}}}}
)
WORKDIR = "/opt/cosyvoice"
CODE = ("client", "cosyvoice_front", "cosyvoice_runtime", "demo_voice", "deploy", "model_repo", "scripts")
POD_ADDRESS = "10.0.0.7"
TIMEOUT_S = 600.0
SANDBOX = """
set -e
shopt -s nullglob
image=$1 volumes=$2
shift 2
mount --bind /tmp /tmp
mount --bind "$image" "$image"
mount -o remount,bind,ro "$image"
for volume in "$volumes"/*; do
    mount --bind "$volume" "$image/${volume##*/}"
done
mount -o remount,bind,ro /
cd "$image"
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs -- "$@"
"""
"""A shell that runs a command where the volumes, /tmp and /dev/shm can be written, and nothing else."""


def may_mount() -> bool:
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


pytestmark = pytest.mark.skipif(not may_mount(), reason="no right to mount")


class Pod(NamedTuple):
    """A process in place of a pod.

    Attributes:
        ports: those that are open here, by their names in the chart.
        output: file with what it says.
    """

    component: str
    process: subprocess.Popen[bytes]
    ports: dict[str, int]
    output: Path

    def status(self, probe: str) -> int:
        """Answer to one of its probes, called as a kubelet calls it."""
        asked = container(self.component, VALUES)[probe]["httpGet"]
        return ask(self.ports[asked["port"]], asked["path"])[0]

    def said(self) -> str:
        return self.output.read_text("utf-8")


def ask(
    port: int, path: str, method: str = "GET", body: str | None = None, **headers: str
) -> tuple[int, bytes]:
    """Status and body; 0 where nobody listens."""
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, body, {"Host": f"{POD_ADDRESS}:{port}", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except ConnectionError:
        return 0, b""
    finally:
        connection.close()


@contextmanager
def running(component: str, folder: Path, ports: dict[str, int], variables: dict[str, str]) -> Iterator[Pod]:
    """A pod of the chart, until the block ends.

    Args:
        folder: gets the image's files and the volumes.
        variables: what a cluster would say otherwise: addresses, and where a Secret lies.
    """
    image, volumes = folder / "image", folder / "volumes"
    image.mkdir(parents=True)
    for name in CODE:
        (image / name).symlink_to(ROOT / name)
    (image / "run.sh").write_bytes((ROOT / "run.sh").read_bytes())
    for mount in container(component, VALUES)["volumeMounts"]:
        place = mount["mountPath"]
        if place.startswith(f"{WORKDIR}/"):
            for parent in (image, volumes):
                (parent / place.removeprefix(f"{WORKDIR}/")).mkdir(parents=True)
    volumes.mkdir(exist_ok=True)
    told = chart_image.variables(component) | environment(component, VALUES) | variables
    told = {name: value.replace(WORKDIR, str(image)) for name, value in told.items()}
    told["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["unshare", "--mount", "bash", "-c", SANDBOX, "sandbox", str(image), str(volumes)]
    output = folder / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*command, *chart_image.command(component)], env=told, stdout=file, stderr=file
        )
    pod = Pod(component, process, ports, output)
    try:
        yield pod
    finally:
        process.kill()
        process.wait()


def test_nothing_but_volumes_can_be_written_in_the_sandbox(tmp_path: Path) -> None:
    image, volumes = tmp_path / "image", tmp_path / "volumes"
    (image / "voices").mkdir(parents=True)
    (volumes / "voices").mkdir(parents=True)

    def may_write(path: str) -> bool:
        command = [
            "unshare",
            "--mount",
            "bash",
            "-c",
            SANDBOX,
            "sandbox",
            str(image),
            str(volumes),
            "touch",
            path,
        ]
        return subprocess.run(command, capture_output=True).returncode == 0

    places = {path: may_write(path) for path in ("run.sh", "voices/one", "/tmp/.cosyvoice-chart", "/etc/one")}
    Path("/tmp/.cosyvoice-chart").unlink()
    assert places == {"run.sh": False, "voices/one": True, "/tmp/.cosyvoice-chart": True, "/etc/one": False}
    assert (volumes / "voices" / "one").exists()


def started(pod: Pod) -> bool:
    assert pod.process.poll() is None, pod.said()
    return pod.status("startupProbe") == 200


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Pod]:
    free = ServerSettings(http_port=0, grpc_port=0, metrics_port=0, model_metrics_port=0)
    chosen = ServerPorts.choose(free)
    variables = {
        "OMP_NUM_THREADS": "1",
        "COSYVOICE_SERVER__HTTP_PORT": str(chosen.http),
        "COSYVOICE_SERVER__GRPC_PORT": str(chosen.grpc),
        "COSYVOICE_SERVER__METRICS_PORT": str(chosen.metrics),
        "COSYVOICE_SERVER__MODEL_METRICS_PORT": str(chosen.model_metrics),
    }
    ports = {"http": chosen.http, "grpc": chosen.grpc, "metrics": chosen.model_metrics}
    with running("server", tmp_path_factory.mktemp("server"), ports, variables) as pod:
        eventually(lambda: started(pod), TIMEOUT_S)
        yield pod


@pytest.fixture(scope="module")
def key(tmp_path_factory) -> tuple[str, Path]:
    """A key, and the folder of a Secret with its hash."""
    secret = tmp_path_factory.mktemp("secret")
    made = subprocess.run(
        [sys.executable, "-m", "cosyvoice_front.keys", "anna"], cwd=ROOT, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    (secret / "keys.txt").write_text(made.stdout)
    return re.findall(r"\S+", made.stderr)[-1], secret


@pytest.fixture(scope="module")
def front(tmp_path_factory, server: Pod, key: tuple[str, Path]) -> Iterator[Pod]:
    free = ServerSettings(http_port=0, grpc_port=0, metrics_port=0, model_metrics_port=0)
    chosen = ServerPorts.choose(free)
    ports = {"http": chosen.http, "metrics": chosen.metrics}
    variables = {
        "COSYVOICE_FRONT__PORT": str(ports["http"]),
        "COSYVOICE_FRONT__METRICS_PORT": str(ports["metrics"]),
        "COSYVOICE_FRONT__GRPC_URL": f"dns:///127.0.0.1:{server.ports['grpc']}",
        "COSYVOICE_FRONT__API_KEYS_FILE": str(key[1] / "keys.txt"),
    }
    with running("front", tmp_path_factory.mktemp("front"), ports, variables) as pod:
        eventually(lambda: started(pod), TIMEOUT_S)
        yield pod


def probes_of(pod: Pod) -> set[str]:
    return {name for name in container(pod.component, VALUES) if name.endswith("Probe")}


def test_every_probe_of_a_server_is_answered(server: Pod) -> None:
    assert probes_of(server) == {"startupProbe", "readinessProbe", "livenessProbe"}
    eventually(lambda: all(server.status(probe) == 200 for probe in probes_of(server)), TIMEOUT_S)


def test_every_probe_of_a_front_is_answered_without_a_key(front: Pod) -> None:
    assert probes_of(front) == {"startupProbe", "readinessProbe", "livenessProbe"}
    eventually(lambda: all(front.status(probe) == 200 for probe in probes_of(front)), TIMEOUT_S)


def test_page_of_metrics_has_what_the_chart_asks_for(server: Pod) -> None:
    [read] = one("PodMonitor", "-server", EVERYTHING)["spec"]["podMetricsEndpoints"]
    status, page = ask(server.ports[read["port"]], read["path"])
    triggers = one("ScaledObject", "-server", KEDA)["spec"]["triggers"]
    names = set(re.findall(r"\bcosyvoice_\w+", " ".join(each["metadata"]["query"] for each in triggers)))
    assert (status, len(names)) == (200, 2)
    shown = {line.partition("{")[0] for line in page.decode().splitlines()}
    assert names <= shown
    for model in ("cosyvoice2", "cosyvoice2_offline"):
        assert f'cosyvoice_inflight_utterances{{model="{model}"}}' in page.decode()


def test_front_speaks_by_the_server_for_who_has_a_key(front: Pod, key: tuple[str, Path]) -> None:
    body = '{"model": "cosyvoice2", "voice": "default", "input": "Hello there.", "response_format": "pcm"}'
    asked = {"Content-Type": "application/json"}
    assert ask(front.ports["http"], "/v1/audio/speech", "POST", body, **asked)[0] == 401
    status, speech = ask(
        front.ports["http"], "/v1/audio/speech", "POST", body, Authorization=f"Bearer {key[0]}", **asked
    )
    assert status == 200, speech
    assert len(speech) > 24_000  # half a second


def test_page_of_the_front_s_metrics_asks_for_no_key(front: Pod) -> None:
    [read] = one("PodMonitor", "-front", EVERYTHING)["spec"]["podMetricsEndpoints"]
    status, page = ask(front.ports[read["port"]], read["path"])
    assert status == 200
    assert b"cosyvoice_front_streams 0.0" in page
    assert b"cosyvoice_front_resumes_total" in page


def test_front_that_is_told_to_stop_leaves_its_service_while_it_still_serves(front: Pod) -> None:
    assert front.status("readinessProbe") == 200
    front.process.send_signal(signal.SIGTERM)
    eventually(lambda: front.status("readinessProbe") == 503)
    assert front.status("livenessProbe") == 200
    assert front.process.wait(TIMEOUT_S) in (0, -signal.SIGTERM)


def test_server_that_is_told_to_stop_ends_with_every_request_answered(server: Pod) -> None:
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(TIMEOUT_S) == 0
    assert "every request answered" in server.said()
