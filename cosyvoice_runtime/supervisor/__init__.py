"""The supervisor: it starts, watches, repairs and stops a tritonserver process."""

from cosyvoice_runtime.supervisor.calls import Probe
from cosyvoice_runtime.supervisor.errors import PreflightError, ServerDiedError, StartError, SupervisorError
from cosyvoice_runtime.supervisor.server import Server

__all__ = ["PreflightError", "Probe", "Server", "ServerDiedError", "StartError", "SupervisorError"]
