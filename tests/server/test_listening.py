"""Every port is open at all addresses to which ``server.host`` leads, and at no other."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
from contextlib import closing

import pytest

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.process.listening import bound, local_url, own_addresses, split_port, with_port
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor import PreflightError, Server
from cosyvoice_runtime.supervisor.preflight import ServerPorts

TIMEOUT_S = 60.0
FREE = {"http_port": 0, "grpc_port": 0, "metrics_port": 0, "model_metrics_port": 0}
PATHS = {"http": "/v2/health/live", "metrics": "/metrics", "model_metrics": "/metrics"}


def has_ipv6() -> bool:
    try:
        bound("::1", 0).close()
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="needs IPv6")


def answers(address: str, port: int, path: str | None) -> bool:
    """Whether somebody listens there; an answer to a path must be 200."""
    try:
        socket.create_connection((address, port), TIMEOUT_S).close()
    except ConnectionRefusedError:
        return False
    if path is not None:
        with closing(http.client.HTTPConnection(with_port(address, port), timeout=TIMEOUT_S)) as connection:
            connection.request("GET", path)
            assert connection.getresponse().status == 200
    return True


@needs_ipv6
@pytest.mark.parametrize(
    ("host", "open_at", "closed_at"),
    [
        ("localhost", {"127.0.0.1", "::1"}, {"127.0.0.2"}),
        ("::1", {"::1"}, {"127.0.0.1"}),
        ("::", {"127.0.0.1", "127.0.0.2", "::1"}, set()),
    ],
)
def test_all_ports_are_as_asked(repository, settings, host, open_at, closed_at):
    with Server(repository, settings.replace(host=host)) as server:
        urls = {
            "http": server.http_url,
            "grpc": server.grpc_url,
            "metrics": server.triton_metrics_url,
            "model_metrics": server.metrics_url,
        }
        for name, url in urls.items():
            port = split_port(url)[1]
            found = {at for at in open_at | closed_at if answers(at, port, PATHS.get(name))}
            assert (name, found) == (name, open_at)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_machine_without_ipv6_is_no_hindrance(monkeypatch, host):
    def bound_without_ipv6(address: str, port: int) -> socket.socket:
        if ":" in address:
            raise OSError(97, "Address family not supported by protocol")
        return bound(address, port)

    monkeypatch.setattr("cosyvoice_runtime.process.listening.bound", bound_without_ipv6)
    assert own_addresses(host, "server.host") == ("127.0.0.1",)
    assert ServerPorts.choose(ServerSettings(host=host, **FREE)).addresses == ("127.0.0.1",)
    with pytest.raises(InvalidInput, match="::' is not accepted"):
        own_addresses("::", "server.host")


@pytest.mark.parametrize(
    "host",
    ["192.0.2.1", "2001:db8::1", "no-such-name.invalid", "", "127.0.0.1:8000", "http://127.0.0.1", "a" * 70],
)
def test_a_host_that_is_not_ours_is_told_in_one_line(host, tmp_path):
    with pytest.raises(PreflightError, match=r"^server\.host: .*(address|name)") as failure:
        ServerPorts.choose(ServerSettings(host=host, **FREE))
    assert len(failure.value.problems) == 1
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("command", "status"), [("cosyvoice_runtime.supervisor build server", 3), ("cosyvoice_front front", 2)]
)
def test_the_commands_say_so_and_end(command, status):
    module, *arguments, section = command.split()
    line = [sys.executable, "-m", module, *arguments, f"{section}.host=192.0.2.1"]
    if section == "front":
        line.append("front.api_keys_file=/dev/null")
    done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == status
    assert f"{section}.host: '192.0.2.1' is not accepted" in done.stderr
    assert done.stderr.count("\n") == 1


@needs_ipv6
@pytest.mark.parametrize(
    ("host", "url"),
    [("localhost", "localhost:7"), ("::", "[::1]:7"), ("0.0.0.0", "127.0.0.1:7"), ("::1", "[::1]:7")],
)
def test_clients_of_this_machine_are_told_an_address_that_reaches_it(host, url):
    assert local_url(host, 7) == url


@needs_ipv6
@pytest.mark.parametrize(
    ("host", "families"),
    [("127.0.0.1", {"127.0.0.1"}), ("localhost", {"127.0.0.1", "::1"}), ("::1", {"::1"})],
)
def test_the_front_listens_at_one_port_of_all_addresses(host, families):
    from cosyvoice_front.command import sockets
    from cosyvoice_runtime.settings import FrontSettings

    opened = sockets(FrontSettings(host=host, port=0))
    try:
        assert {each.getsockname()[0] for each in opened} == families
        assert len({each.getsockname()[1] for each in opened}) == 1
    finally:
        for each in opened:
            each.close()
