"""Starts, watches, repairs and stops a tritonserver process."""

from cosyvoice_runtime.supervisor.errors import (
    PreflightError,
    RepairError,
    ServerDiedError,
    StartError,
    SupervisorError,
)
from cosyvoice_runtime.supervisor.probe import Probe
from cosyvoice_runtime.supervisor.server import Server

__all__ = [
    "PreflightError",
    "Probe",
    "RepairError",
    "Server",
    "ServerDiedError",
    "StartError",
    "SupervisorError",
]
