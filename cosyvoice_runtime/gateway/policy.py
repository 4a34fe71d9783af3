"""The calls and models that are open to clients, and the models that answer unary calls."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from cosyvoice_runtime.errors import shorten

SERVICE = "/inference.GRPCInferenceService"
INFER, STREAM_INFER = f"{SERVICE}/ModelInfer", f"{SERVICE}/ModelStreamInfer"
SERVER_READY = f"{SERVICE}/ServerReady"
MODEL_CONFIG, MODEL_READY = f"{SERVICE}/ModelConfig", f"{SERVICE}/ModelReady"
HEALTH = "/grpc.health.v1.Health"
HEALTH_CHECK, HEALTH_WATCH = f"{HEALTH}/Check", f"{HEALTH}/Watch"
OPEN_CALLS = frozenset(
    {
        HEALTH_CHECK,
        HEALTH_WATCH,
        f"{SERVICE}/ServerLive",
        SERVER_READY,
        f"{SERVICE}/ServerMetadata",
        MODEL_READY,
        f"{SERVICE}/ModelMetadata",
        f"{SERVICE}/ModelStatistics",
        MODEL_CONFIG,
        INFER,
        STREAM_INFER,
    }
)
"""The gRPC methods that clients may call; all others of tritonserver are closed."""
HEALTH_CALLS = frozenset({HEALTH_CHECK, f"{SERVICE}/ServerLive", SERVER_READY})
"""These calls are answered even when the gateway takes no others."""
MAX_NAME_LENGTH = 256
VERSION = re.compile(r"\d{0,9}")
WHOLE_SUFFIX = "_offline"
MODEL_NAME = re.compile(rb'"model_name":"[a-z0-9_]+"')
NAME_WITHIN = 2048
"""The leading bytes of an answer that contain the model's name; the id before it has at most 256
characters."""


FOR_NOW = "UNAVAILABLE"
"""The status of a request that can be served later, or by another server."""


class RefusedError(Exception):
    """A request is refused, with the gRPC name of a status."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


def invalid(field: str, value: object, limit: str) -> RefusedError:
    """The refusal of a field whose value is not valid."""
    return RefusedError("INVALID_ARGUMENT", f"{field}: {shorten(value)} is not accepted; {limit}")


def closed(what: str) -> RefusedError:
    """The refusal of an API that is closed to clients."""
    return RefusedError("PERMISSION_DENIED", f"{shorten(what)} is restricted: it is closed to clients")


@dataclass(frozen=True)
class Policy:
    """Decides which models clients may use."""

    open_models: Collection[str]

    def is_open(self, name: str) -> bool:
        return name in self.open_models

    def check_model(self, name: str, version: str = "") -> None:
        """Refuse a closed or unknown model (the text does not tell which), or an invalid version."""
        if not self.is_open(name):
            known = ", ".join(self.open_models)
            raise RefusedError("NOT_FOUND", f"model_name: {shorten(name)} is unknown here; open are {known}")
        if not VERSION.fullmatch(version):
            raise invalid("model_version", version, "a number or nothing is expected")


def whole_models(models: Collection[str]) -> dict[str, str]:
    """The model that answers the unary calls of each streaming model, by its name."""
    return {name: name + WHOLE_SUFFIX for name in models if name + WHOLE_SUFFIX in models}


def in_the_name_of(model: str, answer: bytes) -> tuple[bytes, int]:
    """An HTTP answer with the model's name replaced, and the number of bytes by which it grew."""
    name = b'"model_name":"' + model.encode() + b'"'
    renamed = MODEL_NAME.sub(name, answer[:NAME_WITHIN], count=1) + answer[NAME_WITHIN:]
    return renamed, len(renamed) - len(answer)
