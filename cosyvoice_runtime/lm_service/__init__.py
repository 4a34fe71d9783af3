"""In-flight batching: requests of many clients in one engine, joining and leaving between two tokens."""

from cosyvoice_runtime.lm_service.engine import EngineError, prepare_engine
from cosyvoice_runtime.lm_service.job import Reader
from cosyvoice_runtime.lm_service.request import Request, RequestReader
from cosyvoice_runtime.lm_service.scheduler import Load, Scheduler

__all__ = ["EngineError", "Load", "Reader", "Request", "RequestReader", "Scheduler", "prepare_engine"]
