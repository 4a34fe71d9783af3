"""The command as an operator or a container runs it: signals in, exit code out."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from hanging_model import HANGING, HANGING_MODEL
from leftovers import leftovers
from tritonclient.grpc import service_pb2, service_pb2_grpc

from cosyvoice_runtime.process import processes
from cosyvoice_runtime.supervisor.errors import UNDRAINED_EXIT_CODE

Eventually = Callable[..., None]
SERVICE_S = 60.0
"""Longest time without service."""
ANSWER_S = 5.0
"""Longest wait for one answer, after which it is asked for again."""


class Command:
    """The supervisor's command with its output in a file."""

    def __init__(self, folder: Path, repository: Path, *settings: str) -> None:
        self.output = folder / "supervisor.log"
        arguments = [
            "server.entry_models=chain",
            "http_port=0",
            "grpc_port=0",
            "metrics_port=0",
            "model_metrics_port=0",
            f"log_file={folder / 'tritonserver.log'}",
            *settings,
        ]
        command = [sys.executable, "-m", "cosyvoice_runtime.supervisor", str(repository), *arguments]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def is_up(self) -> bool:
        assert self.process.poll() is None, self.output.read_text()
        return "all models answer" in self.output.read_text()

    def addresses(self) -> list[str]:
        """What the server said each time that it was up."""
        assert self.process.poll() is None, self.output.read_text()
        return re.findall(r"all models answer after .* s: (.*)", self.output.read_text())

    def server_pid(self) -> int:
        return next(
            process.pid
            for process in processes.living()
            if Path(process.command[0]).name == "tritonserver" and process.parent == self.process.pid
        )

    def gateways(self) -> list[int]:
        """Process ids."""
        return [
            process.pid
            for process in processes.living()
            if process.parent == self.process.pid and "cosyvoice_runtime.gateway" in process.command
        ]

    def answers(self) -> bool:
        """Whether clients get an answer at both ports."""
        grpc_url, http_url = re.findall(r"(?:gRPC|HTTP) (\S+),", self.addresses()[-1])
        return _is_live_by_grpc(grpc_url) and _is_live_by_http(http_url)

    def signal_model(self, model: str, number: signal.Signals) -> None:
        for process in processes.session_members(self.server_pid()):
            if process.model == model:
                os.kill(process.pid, number)

    def exit_code(self) -> int:
        """Wait for the end, after which nothing may be left."""
        code = self.process.wait(300)
        assert leftovers(self.process.pid) == []
        return code


def _is_live_by_grpc(url: str) -> bool:
    with grpc.insecure_channel(url, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        live = service_pb2_grpc.GRPCInferenceServiceStub(channel).ServerLive
        try:
            return live(service_pb2.ServerLiveRequest(), timeout=ANSWER_S).live
        except grpc.RpcError:
            return False


def _is_live_by_http(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{url}/v2/health/live", timeout=ANSWER_S) as answer:
            return answer.status == 200
    except OSError:
        return False


def test_interrupt_stops_with_exit_code_0(tmp_path, repository, eventually):
    command = Command(tmp_path, repository)
    eventually(command.is_up)
    command.process.send_signal(signal.SIGINT)
    assert command.exit_code() == 0
    assert "every request answered" in command.output.read_text()


def test_unknown_setting_exits_with_2(tmp_path, repository):
    command = Command(tmp_path, repository, "server.http_prot=1")
    assert command.exit_code() == 2
    assert "did you mean http_port?" in command.output.read_text()


@pytest.mark.parametrize("setting", ["cosyvoice2.max_inflight_utterances=64", "checkpoint_dir=elsewhere"])
def test_setting_that_the_repository_holds_exits_with_2(tmp_path, repository, setting):
    command = Command(tmp_path, repository, setting)
    assert command.exit_code() == 2
    assert "models have what stage 2 renders" in command.output.read_text()


def test_taken_port_exits_with_3_before_anything_starts(tmp_path, repository):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = Command(tmp_path, repository, f"http_port={taken.getsockname()[1]}")
        assert command.exit_code() == 3
    assert "Address already in use" in command.output.read_text()
    assert not (tmp_path / "tritonserver.log").exists()


def test_model_that_fails_to_load_exits_with_4(tmp_path, repository):
    (repository / "chain" / "1" / "model.py").write_text("import no_such_package\n")
    command = Command(tmp_path, repository)
    assert command.exit_code() == 4
    assert "No module named 'no_such_package'" in command.output.read_text()


def test_server_that_dies_is_started_again_where_it_was(tmp_path, repository, eventually):
    command = Command(tmp_path, repository, "server.max_restarts=1")
    eventually(command.is_up)
    [address] = command.addresses()
    os.kill(command.server_pid(), signal.SIGKILL)
    eventually(lambda: command.addresses() == [address, address])
    assert "starting again: tritonserver ended by itself with exit code -9" in command.output.read_text()
    os.kill(command.server_pid(), signal.SIGKILL)
    assert command.exit_code() == 5


def test_model_that_dies_while_the_server_starts_again_costs_one_more_start(tmp_path, repository, eventually):
    command = Command(tmp_path, repository)
    eventually(command.is_up)
    model = repository / "count" / "1" / "model.py"
    works = model.read_text()
    model.write_text(HANGING_MODEL)
    os.kill(command.server_pid(), signal.SIGKILL)
    eventually(lambda: HANGING in (tmp_path / "tritonserver.log").read_text())
    model.write_text(works)
    command.signal_model("count", signal.SIGKILL)
    eventually(lambda: len(command.addresses()) == 2)
    command.process.send_signal(signal.SIGTERM)
    assert command.exit_code() == 0


def test_stop_while_it_starts_again_exits_with_0(tmp_path, repository, eventually):
    command = Command(tmp_path, repository)
    eventually(command.is_up)
    os.kill(command.server_pid(), signal.SIGKILL)
    eventually(lambda: "starting again" in command.output.read_text())
    command.process.send_signal(signal.SIGTERM)
    assert command.exit_code() == 0


def test_model_that_was_stopped_is_replaced_although_a_request_waits_in_it(tmp_path, repository, eventually):
    probes = ["server.probe_interval_s=0.2", "server.probe_timeout_s=2", "server.max_failed_probes=1"]
    command = Command(tmp_path, repository, *probes)
    eventually(command.is_up)
    command.signal_model("count", signal.SIGSTOP)
    # Triton may not survive the end of a process that a request waits in; then all are started again.
    eventually(
        lambda: "count is back" in command.output.read_text() or len(command.addresses()) == 2, SERVICE_S
    )
    command.process.send_signal(signal.SIGTERM)
    assert command.exit_code() == 0


def test_server_that_hangs_is_started_again(tmp_path, repository, eventually):
    probes = ["server.probe_interval_s=0.2", "server.probe_timeout_s=5", "server.max_failed_probes=2"]
    command = Command(tmp_path, repository, *probes)
    eventually(command.is_up)
    os.kill(command.server_pid(), signal.SIGSTOP)
    eventually(lambda: len(command.addresses()) == 2)
    assert "tritonserver itself answers nothing" in command.output.read_text()
    assert "is reloaded" not in command.output.read_text()
    assert "requests in flight were not waited for" not in command.output.read_text()
    command.process.send_signal(signal.SIGTERM)
    assert command.exit_code() == 0


@pytest.fixture
def reloading(tmp_path: Path, repository: Path, eventually: Eventually) -> Command:
    """A supervisor whose reload of ``count`` never ends; the next load would be a good one."""
    command = Command(tmp_path, repository, "server.drain_timeout_s=2", "server.exit_timeout_s=3")
    eventually(command.is_up)
    model = repository / "count" / "1" / "model.py"
    works = model.read_text()
    model.write_text(HANGING_MODEL)
    command.signal_model("count", signal.SIGKILL)
    eventually(lambda: HANGING in (tmp_path / "tritonserver.log").read_text())
    model.write_text(works)
    return command


def test_server_that_dies_during_a_reload_is_started_again(reloading, eventually):
    os.kill(reloading.server_pid(), signal.SIGKILL)
    eventually(lambda: len(reloading.addresses()) == 2, SERVICE_S)
    reloading.process.send_signal(signal.SIGTERM)
    assert reloading.exit_code() == 0


def test_stop_during_a_reload_is_obeyed_in_time(reloading):
    reloading.process.send_signal(signal.SIGTERM)
    assert reloading.process.wait(SERVICE_S) in (0, UNDRAINED_EXIT_CODE)
    assert leftovers(reloading.process.pid) == []


def test_stop_of_a_server_that_hangs_is_obeyed_in_time(tmp_path, repository, eventually):
    command = Command(tmp_path, repository, "server.drain_timeout_s=2", "server.exit_timeout_s=3")
    eventually(command.is_up)
    os.kill(command.server_pid(), signal.SIGSTOP)
    command.process.send_signal(signal.SIGTERM)
    assert command.process.wait(SERVICE_S) == UNDRAINED_EXIT_CODE
    assert "not done within 2 s" in command.output.read_text()
    assert leftovers(command.process.pid) == []


def test_second_signal_while_the_server_ends_is_obeyed(tmp_path, repository, eventually):
    command = Command(tmp_path, repository, "server.drain_timeout_s=1", "server.exit_timeout_s=600")
    eventually(command.is_up)
    os.kill(command.server_pid(), signal.SIGSTOP)
    command.process.send_signal(signal.SIGTERM)
    eventually(lambda: "requests in flight were not waited for" in command.output.read_text())
    command.process.send_signal(signal.SIGTERM)
    assert command.process.wait(SERVICE_S) == UNDRAINED_EXIT_CODE
    assert leftovers(command.process.pid) == []


def test_second_signal_while_it_starts_is_obeyed(tmp_path, repository, eventually):
    (repository / "count" / "1" / "model.py").write_text(HANGING_MODEL)
    log = tmp_path / "tritonserver.log"
    command = Command(tmp_path, repository, "server.exit_timeout_s=600")
    eventually(lambda: log.exists() and HANGING in log.read_text())
    os.kill(command.server_pid(), signal.SIGSTOP)
    deadline = time.monotonic() + SERVICE_S
    while command.process.poll() is None and time.monotonic() < deadline:
        command.process.send_signal(signal.SIGTERM)  # two that come together are one
        time.sleep(0.5)
    assert command.process.returncode == 0
    assert leftovers(command.process.pid) == []


def test_gateway_that_hangs_is_replaced(tmp_path, repository, eventually):
    probes = ["server.probe_interval_s=0.5", "server.probe_timeout_s=5", "server.max_failed_probes=2"]
    command = Command(tmp_path, repository, *probes)
    eventually(command.is_up)
    hanging = command.gateways()
    try:
        for pid in hanging:  # one after the other
            os.kill(pid, signal.SIGSTOP)
            eventually(lambda pid=pid: not processes.is_alive(pid) and command.answers())
            assert len(command.gateways()) == 2
        assert command.output.read_text().count("gives no answer and is killed") == 2
    finally:
        command.process.send_signal(signal.SIGTERM)
        assert command.exit_code() == 0


def test_stop_is_obeyed_where_a_gateway_hangs(tmp_path, repository, eventually):
    command = Command(tmp_path, repository)
    eventually(command.is_up)
    gateways = command.gateways()
    os.kill(gateways[0], signal.SIGSTOP)
    command.process.send_signal(signal.SIGTERM)
    assert command.exit_code() == 0
    assert not any(map(processes.is_alive, gateways))


@pytest.mark.parametrize("again", [False, True], ids=["first", "started again"])
def test_killed_supervisor_leaves_no_server_and_no_hanging_gateway(tmp_path, repository, eventually, again):
    command = Command(tmp_path, repository)
    eventually(command.is_up)
    if again:
        killed = command.gateways()
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: not any(map(processes.is_alive, killed)) and command.answers())
    gateways = command.gateways()
    assert leftovers(command.process.pid) != []
    os.kill(gateways[0], signal.SIGSTOP)
    command.process.kill()
    command.process.wait()
    try:
        eventually(lambda: not any(map(processes.is_alive, gateways)), SERVICE_S)
        with suppress(AssertionError):
            eventually(lambda: leftovers(command.process.pid) == [], SERVICE_S)
        assert leftovers(command.process.pid) == []
    finally:
        for pid in filter(processes.is_alive, gateways):
            os.kill(pid, signal.SIGKILL)


def test_help_tells_the_exit_codes():
    answer = subprocess.run(
        [sys.executable, "-m", "cosyvoice_runtime.supervisor", "--help"], capture_output=True, text=True
    )
    assert answer.returncode == 0
    assert "Exit codes: 0 stopped when told to" in answer.stdout
