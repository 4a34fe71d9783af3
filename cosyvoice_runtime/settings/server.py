"""Section of the server: where it listens, how it is started, watched and stopped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from cosyvoice_runtime.settings.rule import between
from cosyvoice_runtime.settings.section import Section

GRPC_URL_VARIABLE = "SUPERVISOR_GRPC_URL"
"""Environment variable by which the supervisor tells the models the server's own gRPC port."""


@dataclass(frozen=True)
class ServerSettings(Section):
    """``server``: tritonserver and its supervisor."""

    name: ClassVar[str] = "server"

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for every interface."""
    http_port: int = between(8000, 0, 65535)
    """Port of HTTP; 0 takes a free one."""
    grpc_port: int = between(8001, 0, 65535)
    """Port of gRPC; 0 takes a free one."""
    metrics_port: int = between(8002, 0, 65535)
    """Port of Triton's own metrics; 0 takes a free one."""
    model_metrics_port: int = between(8003, 0, 65535)
    """Port of the page with all metrics, Triton's and the models'; 0 takes a free one."""
    log_file: Path = Path("tritonserver.log")
    """What tritonserver and the models write."""
    entry_models: tuple[str, ...] = ("cosyvoice2", "cosyvoice2_offline")
    """Models that call the others: loaded last, unloaded first."""
    start_timeout_s: float = between(600.0, 1.0, 86400.0)
    """Longest time from start until every model has answered its probe."""
    probe_timeout_s: float = between(60.0, 0.1, 3600.0)
    """Longest time of one probe."""
    probe_interval_s: float = between(30.0, 0.0, 86400.0)
    """Time between two rounds of probes; 0 for none after the start."""
    max_failed_probes: int = between(3, 1, 100)
    """Failed probes in a row after which a model is reloaded."""
    watch_interval_s: float = between(1.0, 0.05, 60.0)
    """Time between two looks at the processes of the models."""
    max_reloads: int = between(20, 0, 1_000_000)
    """Times that one model is reloaded within ten minutes before the server gives up and stops."""
    max_restarts: int = between(5, 0, 1_000_000)
    """Times that tritonserver is started again within ten minutes, when it ends by itself."""
    drain_timeout_s: float = between(60.0, 0.0, 86400.0)
    """Longest time that utterances in flight get to finish when the server stops."""
    exit_timeout_s: float = between(5.0, 1.0, 600.0)
    """Longest time from SIGTERM until what is left of the server is killed."""
    min_shared_memory_mib: int = between(64, 1, 1_048_576)
    """Free space in /dev/shm below which the server does not start."""
