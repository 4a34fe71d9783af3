"""One page for Prometheus: Triton's metrics and the models'."""

from __future__ import annotations

import http.client
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor import Server
from cosyvoice_runtime.supervisor.calls import ControlError
from cosyvoice_runtime.supervisor.metrics import MAX_READERS, MetricsEndpoint
from cosyvoice_runtime.supervisor.preflight import ServerPorts

FREE_PORTS = ServerSettings(http_port=0, grpc_port=0, metrics_port=0, model_metrics_port=0)
TIMEOUT_S = 60.0


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[], str]], str]]:
    """``serve(page)`` starts an endpoint and returns its address."""
    endpoints: list[MetricsEndpoint] = []

    def start(page: Callable[[], str]) -> str:
        ports = ServerPorts.choose(FREE_PORTS)
        endpoints.append(MetricsEndpoint(ports.addresses, {ports.model_metrics: page}, names=()))
        return ports.url(ports.model_metrics)

    yield start
    for endpoint in endpoints:
        endpoint.close()


def get(url: str, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://{url}{path}", timeout=TIMEOUT_S) as page:
        return page.read().decode()


def headings(page: str) -> set[str]:
    return {line for line in page.splitlines() if line.startswith("# TYPE")}


def sample(server: Server, name: str, model: str) -> float:
    """A number of the one page; there must be exactly one."""
    (value,) = re.findall(rf'^{name}\{{model="{model}".*\}} (\S+)$', get(server.metrics_url), re.MULTILINE)
    return float(value)


def test_page_is_served_at_metrics_only(serve):
    url = serve(lambda: "words, 声\n")
    assert get(url) == get(url, "/metrics?again") == "words, 声\n"
    with pytest.raises(urllib.error.HTTPError, match="404: only /metrics is here"):
        get(url, "/")


def test_head_is_answered_as_a_get_without_the_page(serve):
    url = serve(lambda: "words\n")
    connection = http.client.HTTPConnection(url, timeout=TIMEOUT_S)
    connection.request("HEAD", "/metrics")
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Content-Length"], answer.read()) == (200, "6", b"")


@pytest.mark.parametrize("said", ["silent", "half"])
def test_more_readers_than_the_limit_who_say_nothing_keep_nobody_waiting(serve, said):
    url = serve(lambda: "words\n")
    host, _, port = url.rpartition(":")
    with ExitStack() as stack:
        for _ in range(4 * MAX_READERS):
            reader = stack.enter_context(socket.create_connection((host, int(port)), TIMEOUT_S))
            reader.sendall(b"" if said == "silent" else b"GET /me")
        assert get(url) == "words\n"
        assert sum(thread.name.startswith("Thread-") for thread in threading.enumerate()) <= 2 * MAX_READERS


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example:8003"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Host": "localhost:8003"}, 200),
        ({"Host": "[::1]:8003"}, 200),
        ({"Host": "10.0.0.1"}, 200),
    ],
)
def test_pages_of_browsers_read_no_metrics(serve, headers, status):
    connection = http.client.HTTPConnection(serve(lambda: "words\n"), timeout=TIMEOUT_S)
    connection.request("GET", "/metrics", headers=headers)
    assert connection.getresponse().status == status
    connection.close()


def test_page_that_cannot_be_made_is_unavailable(serve):
    def page() -> str:
        raise ControlError("no answer to metrics")

    with pytest.raises(urllib.error.HTTPError, match="503") as failure:
        get(serve(page))
    assert "no answer to metrics" in failure.value.read().decode()


def test_closed_endpoint_gives_its_port_back():
    ports = ServerPorts.choose(FREE_PORTS)
    for text in ("first", "second"):
        endpoint = MetricsEndpoint(ports.addresses, {ports.model_metrics: lambda text=text: text})
        assert get(ports.url(ports.model_metrics)) == text
        endpoint.close()


def test_page_holds_tritons_metrics_and_the_models_before_and_after_a_crash(server, count, eventually):
    def in_work(model: str) -> float:
        return sample(server, "cosyvoice_requests_in_work", model)

    def counted() -> float:
        return sample(server, "counted_total", "count")

    own = {line for line in headings(get(server.metrics_url)) if line.split()[2].startswith("process_")}
    assert "# TYPE process_start_time_seconds gauge" in own
    assert headings(get(server.metrics_url)) == headings(get(server.triton_metrics_url)) | own | {
        "# TYPE cosyvoice_requests_in_work gauge",
        "# TYPE cosyvoice_restarts_total counter",
        "# TYPE cosyvoice_failed_probes_total counter",
        "# TYPE cosyvoice_cpu_fallback gauge",
        "# TYPE cosyvoice_disk_free_bytes gauge",
        "# TYPE counted_total counter",
    }
    stream = count(server, "count", 1200, 50)
    stream.first()
    assert in_work("count") == 1
    eventually(lambda: counted() > 10)  # while the stream runs
    before = counted()
    count(server, "count", -1)
    eventually(lambda: server.reloads["count"] == 1)
    assert 'cosyvoice_restarts_total{process="count"} 1.0' in get(server.metrics_url)
    eventually(lambda: in_work("count") == 0)
    after = counted()
    assert after > before
    assert count(server, "chain", 3).rest() == [0, 1, 2]
    eventually(lambda: in_work("chain") == in_work("count") == 0)
    assert counted() == after + 3
    eventually(lambda: sample(server, "nv_inference_request_success", "chain") == 2)  # with the probe
