"""A gateway in a process of its own, with no server behind it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.preflight import ServerPorts

MIB = 2**20
FREE = ServerSettings(http_port=0, grpc_port=0, metrics_port=0, model_metrics_port=0)


@dataclass(frozen=True)
class Gateway:
    """
    Attributes:
        address: ``host:port``.
        pid: of the process.
        log: what it writes.
    """

    address: str
    pid: int
    log: Path

    @property
    def place(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host, int(port)


@contextmanager
def gateway_process(
    protocol: str, folder: Path, open_files: int | str = "unlimited", request_mib: int = 24, **limits: float
) -> Iterator[Gateway]:
    """
    Args:
        open_files: that the process may have, as the shell's ``ulimit -n`` takes it.
    """
    address = f"127.0.0.1:{ServerPorts.choose(FREE).http}"
    size = request_mib * MIB
    options = GatewayOptions(address, str(folder / "nobody"), ("m",), size, size, **limits)
    limit = "" if open_files == "unlimited" else f"ulimit -n {open_files} && "
    command = f'{limit}exec "{sys.executable}" -m cosyvoice_runtime.gateway {protocol}'
    log = folder / "gateway.log"
    with log.open("wb") as written:
        process = subprocess.Popen(
            ["bash", "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=written,
            text=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(options.to_json() + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "open\n"
    try:
        yield Gateway(address, process.pid, log)
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()
