"""Options that a gateway is given when it starts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class GatewayOptions:
    """
    Attributes:
        address: ``host:port`` where clients come; the host may be a name that leads to several addresses.
        server: path of tritonserver's Unix socket.
        open_models: that clients may ask.
        max_request_bytes: size of the largest request.
        stages: models that can't be told of a client that has left; open to clients for development only.
        max_pending_bytes: size of all requests together that tritonserver has not begun to answer; it copies
            them into shared memory, which never shrinks.
        shared: directory that the processes of the server's run share; empty for a gateway that leaves
            refusals to the models.
        whole_models: by the name of a model that streams, the one that gives its answer to a unary call.
        arrival_timeout_s: longest time for a request to come.
        stalled_client_timeout_s: longest time for which a client may take nothing of what is for it.
        audit_file: of the audit log; empty for none.
        names: by which clients of HTTP may call, beside localhost and addresses; None for any.
    """

    address: str
    server: str
    open_models: tuple[str, ...]
    max_request_bytes: int
    max_pending_bytes: int
    stages: tuple[str, ...] = ()
    shared: str = ""
    whole_models: Mapping[str, str] = field(default_factory=dict)
    arrival_timeout_s: float = 60.0
    stalled_client_timeout_s: float = 60.0
    audit_file: str = ""
    names: tuple[str, ...] | None = None

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> GatewayOptions:
        values: dict[str, Any] = json.loads(text)
        return cls(
            **values | {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        )
