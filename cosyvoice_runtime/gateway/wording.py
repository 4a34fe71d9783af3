"""The wording of errors for clients.

Errors of the models reach the client as they are. Errors of tritonserver may hold names of memory, paths and
lines of code, and call a model that is being loaded again unknown: they are passed on where they are about
the request, and reworded elsewhere.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

from cosyvoice_runtime.errors import split_status, with_status

logger = logging.getLogger(__name__)

MAX_LENGTH = 1000
RESTARTING = "the model is being started; try again later"
"""Clients may only call models that exist, so one that is not found is being reloaded."""
STOPPING = "the server is stopping; try again later"
CROWDED = "too many requests wait; try again in 2 s"
SHORT_OF_MEMORY = "no memory is left for this request; try again in 2 s"
INTERNAL = "internal error; the server's log has the details"

A_MODELS = re.compile(r"[a-z][a-z0-9_]*: ")
"""The start of the models' own errors: the name of an input or of a model."""
NOT_NOW = {
    r"shared.?memory|/dev/shm|\bshm\b|memory pool|allocate|boost": SHORT_OF_MEMORY,
    r"stub process|not healthy|not ready|unload|unknown model|no available version": RESTARTING,
    r"is not found|failed to connect|socket closed|connection reset|recvmsg|GOAWAY": RESTARTING,
    r"stream removed|RST_STREAM|ping timeout|backends|backend unhealthy": RESTARTING,
    # gRPC says this of a message for a call that has ended, and forgets the status with which it ended.
    r"internal error from core": RESTARTING,
    r"maximum queue size|request timeout expired": CROWDED,
}
"""Texts of tritonserver, and of gRPC between it and the gateway, that mean: try again."""
TRY_AGAIN = re.compile(r"; try again (?:later|in [\d.]+ s)$")
"""The end of a model's refusal that asks the client to try again."""
RETRY_AFTER = re.compile(r"; try again in (\d+(?:\.\d+)?) s$")
"""The end of a refusal that says when to try again."""
NO_SUCH_VERSION = re.compile(r"version (\d+) is not found")
FAULT_OF_THE_REQUEST = re.compile(r"input|output|shape|batch|datatype|data type|parse|parameter", re.I)
TELLTALE = re.compile(r"Traceback|File \"|(?:/[\w.-]+){2}|0x[0-9a-f]{6,}|\w+\.(?:cc|cpp|h|py):\d+")
"""Patterns that clients need not see: paths, addresses and lines of code."""
REQUEST_ID = re.compile(r"^\[request id: [^\]]*\] ")


def how_far(shared: str) -> str:
    """Tell how far the start is: "the model is being started ... (token2wav: 31 of 54 calls)".

    Args:
        shared: directory that the processes of the server's run share; empty for none.
    """
    # prometheus_client takes memory, which only a gateway needs that is asked during a start.
    from cosyvoice_runtime.metrics.page import read_progress

    far = read_progress(Path(shared)) if shared else {}
    told = ", ".join(f"{model}: {steps}" for model, steps in far.items())
    return f"{RESTARTING} ({told})" if told else RESTARTING


def reworded_in_stream(message: str) -> str:
    """The text of a stream's error, with its status in front as the models write it."""
    status, text = split_status(message)
    if text != message and not _is_suspect(text):
        return message
    return with_status(*reworded(status, text))


def models_status(status: str, message: str) -> tuple[str, str]:
    """The status and text of a ``generate`` error, for which tritonserver always answers 400."""
    said, text = split_status(message)
    if text != message:
        return said, text
    return ("UNAVAILABLE" if TRY_AGAIN.search(message) else status), message


def reworded(status: str, message: str) -> tuple[str, str]:
    """The status and text for the client; the log keeps a text that is replaced."""
    text = REQUEST_ID.sub("", message, count=1)[:MAX_LENGTH]
    if A_MODELS.match(text):
        return status, text
    if version := NO_SUCH_VERSION.search(text):
        return "NOT_FOUND", f"model_version: {version[1]} is unknown"
    for pattern, words in NOT_NOW.items():
        # What a client sent may stand in a text about its request, and must not change the status.
        if status != "INVALID_ARGUMENT" and re.search(pattern, text, re.I):
            logger.warning("%s, clients are told: %s", message, words)
            return "UNAVAILABLE", words
    if TELLTALE.search(text):
        return _internal(message)
    if status not in ("INTERNAL", "UNKNOWN"):
        return status, text
    return ("INVALID_ARGUMENT", text) if FAULT_OF_THE_REQUEST.search(text) else _internal(message)


def _is_suspect(text: str) -> bool:
    """Whether a model may have forwarded an error of tritonserver."""
    return bool(TELLTALE.search(text)) or any(re.search(pattern, text, re.I) for pattern in NOT_NOW)


def _internal(message: str) -> tuple[str, str]:
    logger.error("%s, clients are told: %s", message, INTERNAL)
    return "INTERNAL", INTERNAL
