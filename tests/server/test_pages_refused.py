"""No port of HTTP serves a page of a browser, whatever name has come to lead to this machine."""

from __future__ import annotations

import http.client
from contextlib import closing

import pytest

from cosyvoice_runtime.process.listening import split_port
from cosyvoice_runtime.supervisor import Server

TIMEOUT_S = 60.0
PROGRAMS = [{}, {"Host": "localhost"}, {"Host": "our.name:80"}]
PAGES = [{"Origin": "http://evil.example"}, {"Origin": "null"}]
BY_NAME = {"Host": "server:8003"}
"""As Prometheus asks by the name of a service, and a page whose own name leads here."""


def status(url: str, path: str, headers: dict[str, str]) -> int:
    with closing(http.client.HTTPConnection(*split_port(url), timeout=TIMEOUT_S)) as connection:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status


@pytest.mark.parametrize(("host", "by_name"), [("127.0.0.1", 403), ("0.0.0.0", 200)])
def test_names_are_asked_for_where_nobody_but_this_machine_calls(repository, settings, host, by_name):
    with Server(repository, settings.replace(host=host, allowed_hosts="our.name")) as server:
        doors = [
            (server.http_url, "/v2/health/live"),
            (server.metrics_url, "/metrics"),
            (server.triton_metrics_url, "/metrics"),
        ]
        for url, path in doors:
            assert [status(url, path, headers) for headers in PROGRAMS] == [200] * len(PROGRAMS)
            assert [status(url, path, headers) for headers in PAGES] == [403] * len(PAGES)
            assert status(url, path, BY_NAME) == by_name
