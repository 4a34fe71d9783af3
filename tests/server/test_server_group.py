"""Several servers of one machine behind one address, each told of a GPU of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError

import grpc
import pytest
from conftest import MODELS, settings_in
from leftovers import leftovers
from tritonclient.utils import InferenceServerException

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.supervisor import group as group_module
from cosyvoice_runtime.supervisor import memory
from cosyvoice_runtime.supervisor.errors import PreflightError, StartError
from cosyvoice_runtime.supervisor.group import ServerGroup
from cosyvoice_runtime.supervisor.places import ServerPlace
from eventually import eventually

SERVERS = 3
NUMBERS = list(range(20))
SERVING = b"\x08\x01"
ANSWER_S = 60.0
Start = Callable[..., object]


def places(count: int = SERVERS) -> list[ServerPlace]:
    return [
        ServerPlace(f"server {n}", {"CUDA_VISIBLE_DEVICES": f"GPU-{n}"}, count) for n in range(1, count + 1)
    ]


def group_in(folder: Path, count: int = SERVERS, **settings: object) -> ServerGroup:
    repository = Path(shutil.copytree(MODELS, folder / "repository"))
    return ServerGroup(repository, settings_in(folder).replace(**settings), places(count))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerGroup]:
    """One group for all tests of this file that leave it as it was; the last one ends it."""
    with group_in(tmp_path_factory.mktemp("group"), max_restarts=1) as group:
        yield group


@pytest.fixture
def group(running: ServerGroup, count: Start) -> ServerGroup:
    """The group, idle, with all servers in the turn."""
    eventually(lambda: working(running) == [0] * SERVERS)
    assert all(server.inflight() for server in running.servers.values())
    eventually(lambda: {where(running, count) for _ in range(SERVERS)} == {*running.servers})
    return running


def working(group: ServerGroup) -> list[int]:
    """The requests in progress of each server."""
    return [server.inflight().get("chain", 0) for server in group.servers.values()]


def where(group: ServerGroup, count: Start) -> str:
    """The name of the server that gets the next request; empty where one comes back meanwhile."""
    before = numbers_sent(group)
    assert count(group, "count", 1).rest() == [0]
    eventually(lambda: numbers_sent(group) != before)
    found = [name for name, sent in numbers_sent(group).items() if sent != before.get(name)]
    return found[0] if len(found) == 1 else ""


def numbers_sent(group: ServerGroup) -> dict[str, list[str]]:
    """The lines about numbers sent in each server's metrics; none of a server that is away."""
    found: dict[str, list[str]] = {}
    for name, server in group.servers.items():
        with suppress(URLError):
            found[name] = [
                line for line in page(server.metrics_url).splitlines() if line.startswith("counted_total")
            ]
    return found


def page(url: str) -> str:
    with urllib.request.urlopen(f"http://{url}/metrics", timeout=ANSWER_S) as answer:
        return answer.read().decode()


def get(group: ServerGroup, path: str) -> int:
    with urllib.request.urlopen(f"http://{group.http_url}{path}", timeout=ANSWER_S) as answer:
        return answer.status


def health(group: ServerGroup) -> bytes:
    with grpc.insecure_channel(group.grpc_url) as channel:
        return channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=ANSWER_S)


def test_streams_are_spread_evenly_over_all_servers(group, count):
    streams = [count(group, "chain", 20, 50) for _ in range(4 * SERVERS)]
    firsts = [stream.first() for stream in streams]
    assert working(group) == [4] * SERVERS
    assert [[first, *stream.rest()] for first, stream in zip(firsts, streams, strict=True)] == [
        NUMBERS
    ] * len(streams)


def test_each_server_has_its_own_gpu_and_log(group):
    for name, server in group.servers.items():
        environment = Path(f"/proc/{server.session}/environ").read_bytes().split(b"\0")
        assert f"CUDA_VISIBLE_DEVICES=GPU-{name[-1]}".encode() in environment
    folder = group.settings.log_file.parent
    assert {path.name for path in folder.glob("*.log")} == {
        "tritonserver.log",
        *(f"tritonserver.server{number}.log" for number in range(1, SERVERS + 1)),
    }


def test_health_readiness_and_metrics_answer_at_the_address(group):
    assert health(group) == SERVING
    assert [get(group, path) for path in ("/v2/health/ready", "/v2/models/chain/ready", "/v2")] == [200] * 3
    assert 'cosyvoice_restarts_total{process="grpc gateway"}' in page(group.metrics_url)
    for server in group.servers.values():
        assert "nv_inference_request_success" in page(server.metrics_url)


def test_killed_server_costs_its_own_streams_alone_and_is_back(group, count):
    streams = [count(group, "chain", 60, 50) for _ in range(2 * SERVERS)]
    for stream in streams:
        stream.first()
    [killed, *_] = group.servers.values()
    os.kill(killed.session, signal.SIGKILL)

    def rest(stream: object) -> list[int] | InferenceServerException:
        try:
            return stream.rest()
        except InferenceServerException as error:
            return error

    with ThreadPoolExecutor(len(streams)) as pool:
        heard = list(pool.map(rest, streams))
    lost = [each for each in heard if isinstance(each, InferenceServerException)]
    assert len(lost) == 2
    assert {each.status() for each in lost} == {"StatusCode.UNAVAILABLE"}
    assert [each for each in heard if isinstance(each, list)] == [list(range(1, 60))] * 4
    for _ in range(3 * SERVERS):  # While it is away, all are served by the others.
        assert count(group, "count", 20).rest() == NUMBERS
    assert health(group) == SERVING
    assert get(group, "/v2/health/ready") == 200
    eventually(lambda: numbers_sent(group).keys() == group.servers.keys())
    eventually(lambda: {where(group, count) for _ in range(SERVERS)} == {*group.servers})


def test_server_that_can_not_be_kept_up_is_left_out(group, count, caplog):
    """It was started again once in the test before, which is as often as these settings allow."""
    [dead, *others] = group.servers.items()
    os.kill(dead[1].session, signal.SIGKILL)
    eventually(lambda: "it is left out, and other servers go on" in caplog.text)
    for _ in range(3 * SERVERS):
        assert count(group, "count", 20).rest() == NUMBERS
    eventually(lambda: {where(group, count) for _ in others} == {name for name, _ in others})
    group.require()


def test_stop_lets_streams_finish_and_begins_none(running, count):
    streams = [count(running, "chain", 60, 50) for _ in range(4)]
    firsts = [stream.first() for stream in streams]
    stop = threading.Thread(target=running.stop)
    stop.start()

    def refused() -> bool:
        try:
            count(running, "count", 1).rest()
        except InferenceServerException as error:
            return error.status() == "StatusCode.UNAVAILABLE"
        return False

    eventually(refused)
    assert [[first, *stream.rest()] for first, stream in zip(firsts, streams, strict=True)] == [
        list(range(60))
    ] * 4
    stop.join(300)
    assert running.drained
    assert leftovers() == []


def test_server_that_does_not_come_up_ends_all_with_the_reason(tmp_path, caplog):
    group = group_in(tmp_path, 2)
    model = tmp_path / "repository" / "count" / "1" / "model.py"
    model.write_text(
        "import os\nassert os.environ['CUDA_VISIBLE_DEVICES'] != 'GPU-2', 'no such GPU'\n" + model.read_text()
    )
    with pytest.raises(StartError, match="no such GPU"):
        group.start()
    assert "server 2 did not come up, so all are stopped" in caplog.text
    assert leftovers() == []


def test_port_that_is_taken_is_named_before_anything_starts(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PreflightError, match=f"grpc_port {port} on 127.0.0.1 can't be used"):
            group_in(tmp_path, grpc_port=port).start()
    assert not list(tmp_path.glob("*.log"))


def test_ports_of_the_servers_follow_from_those_of_the_address(tmp_path):
    group = group_in(tmp_path, grpc_port=20_500, http_port=20_400)
    assert [server.grpc_url for server in group.servers.values()] == [
        f"127.0.0.1:{port}" for port in (20_600, 20_700, 20_800)
    ]
    with pytest.raises(InvalidInput, match=r"server.http_port.*65400.*at most 65335"):
        group_in(tmp_path / "high", http_port=65_400)


def test_servers_of_a_host_by_name_are_found(tmp_path, count):
    with group_in(tmp_path, 2, host="localhost") as group:
        assert group.grpc_url.startswith("localhost:")
        assert health(group) == SERVING
        assert count(group, "chain", 3).rest() == [0, 1, 2]
        assert get(group, "/v2/health/ready") == 200


def test_gateway_that_finds_no_server_ends_the_start_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(group_module, "SERVING_TIMEOUT_S", 1.0)
    monkeypatch.setattr(group_module, "local_url", lambda host, _: f"{host}:1")
    with pytest.raises(StartError, match=r"not 127.0.0.1:\d+ before them within 1 s: \w+"):
        group_in(tmp_path, 1).start()
    assert leftovers() == []


def test_too_little_memory_is_told_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "free_mib", lambda: 1500)
    with pytest.raises(
        PreflightError, match="3 servers need 2100 MiB of memory, 700 each, and 1500 are free"
    ):
        group_in(tmp_path).start()
    assert not list(tmp_path.glob("*.log"))


def test_free_memory_is_that_of_the_container(tmp_path, monkeypatch):
    whole = memory.free_mib()
    (tmp_path / "memory.max").write_text("2147483648\n")
    (tmp_path / "memory.current").write_text("1610612736\n")
    (tmp_path / "memory.stat").write_text("anon 1\nfile 536870912\n")
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    assert memory.free_mib() == min(1024, whole)
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.free_mib() > 0
