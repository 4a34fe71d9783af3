"""Where tritonserver itself listens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ServerSockets:
    """Unix sockets in a folder that only the server's own user may enter: no key is needed.

    The supervisor, the models among each other and the gateways come this way.
    """

    folder: Path

    @property
    def http(self) -> Path:
        return self.folder / "http"

    @property
    def grpc(self) -> Path:
        return self.folder / "grpc:1"  # tritonserver writes a port behind every address

    @property
    def metrics(self) -> Path:
        return self.folder / "triton_metrics"

    @property
    def metrics_url(self) -> str:
        return f"unix:{self.metrics}"

    @property
    def http_url(self) -> str:
        return f"unix:{self.http}"

    @property
    def grpc_url(self) -> str:
        return f"unix:{self.grpc}"

    @property
    def arguments(self) -> list[str]:
        """Those of tritonserver."""
        return [
            f"--http-address={self.http_url}",
            "--http-port=1",
            f"--grpc-address={self.grpc_url.removesuffix(':1')}",
            "--grpc-port=1",
            f"--metrics-address={self.metrics_url}",
            "--metrics-port=1",
        ]
