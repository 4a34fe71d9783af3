"""The headers and environment variables by which the processes of a server pass facts to each other."""

from __future__ import annotations

import re
import secrets
import uuid
from collections.abc import Mapping
from typing import Any

PROBE_KEY_VARIABLE = "SUPERVISOR_PROBE_KEY"
"""A secret of the run, by which the entry models recognise the supervisor's probes."""


CLIENT_HEADER = "x-client-id"
"""The client's name, given by the client or by a proxy that knows it."""
CALL_HEADER = "x-call-id"
"""The call of a request: a secret between gateway and models."""
LEFT_HEADER = "x-left-call"
"""A model stops all work of the call in this header, because its client has left."""
PROBE_HEADER = "x-probe"
"""A secret by which models recognise the supervisor's probes; no gateway forwards a client's."""
REQUEST_HEADER = "x-request-id"
"""The name in logs of a request without an id."""
ELSEWHERE_HEADER = "x-asks-elsewhere"
"""Says that whoever is refused asks another server, so that no place is kept for it."""
TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
"""The place of a request in its trace, as W3C's Trace Context has it, and what tracers add to that."""
HANDED_ON = (
    CLIENT_HEADER, CALL_HEADER, LEFT_HEADER, REQUEST_HEADER, ELSEWHERE_HEADER, TRACEPARENT, TRACESTATE
)  # fmt: skip
PUSHBACK_HEADER = "grpc-retry-pushback-ms"
"""The milliseconds after which gRPC's own retries come back."""

GIVEN_NAME = re.compile(r"[\w.:-]{1,128}", re.ASCII)
"""A valid name of a request; other characters could forge lines of a log."""
PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
STATE = re.compile(r"[ -~]{1,512}")
"""A valid ``traceparent`` and ``tracestate``, of at most the length that everybody has to pass on."""


def request_name(given: str | None) -> str:
    """The given name of a request if it is valid, else a new one."""
    return given if given and GIVEN_NAME.fullmatch(given) else f"req_{uuid.uuid4().hex}"


def trace_headers(said: Mapping[str, Any]) -> dict[str, str]:
    """The valid ones of the headers of a trace, by their names in lower case; none without a valid parent."""
    parent, state = said.get(TRACEPARENT), said.get(TRACESTATE)
    if parent is None or not PARENT.fullmatch(str(parent)):
        return {}
    valid = state is not None and STATE.fullmatch(str(state))
    return {TRACEPARENT: str(parent)} | ({TRACESTATE: str(state)} if valid else {})


def new_call_id() -> str:
    """A new name for a call, which nobody can guess."""
    return secrets.token_hex(16)
