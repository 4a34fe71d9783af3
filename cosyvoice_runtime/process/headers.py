"""Headers of gRPC and HTTP that tritonserver hands to the models, as parameters of a request."""

from __future__ import annotations

import re
import uuid

CLIENT_HEADER = "x-client-id"
"""Who asks, where that is said: by the client, or by a proxy that knows it."""
CALL_HEADER = "x-call-id"
"""Which call a request came by: a secret between gateway and models."""
LEFT_HEADER = "x-left-call"
"""Asks a model to stop whatever it does for that call, as its client has left."""
PROBE_HEADER = "x-probe"
"""A secret of the run, by which a model knows the supervisor's probes; no gateway passes on a client's."""
REQUEST_HEADER = "x-request-id"
"""By which logs name a request that has no id of Triton's."""
HANDED_ON = (CLIENT_HEADER, CALL_HEADER, LEFT_HEADER, REQUEST_HEADER)

GIVEN_NAME = re.compile(r"[\w.:-]{1,128}", re.ASCII)
"""A request's name that is taken as it comes; anything else could forge lines of a log."""


def request_name(given: str | None) -> str:
    """The name of a request: as given, or else a new one."""
    return given if given and GIVEN_NAME.fullmatch(given) else f"req_{uuid.uuid4().hex}"
