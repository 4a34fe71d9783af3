"""The options that a gateway gets when it starts."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LEAVE = "leave\n"
"""The line that tells a gateway to begin no utterance any more."""


@dataclass(frozen=True)
class GatewayOptions:
    """The options of one gateway.

    Attributes:
        address: ``host:port`` where clients come; the host may be a name that leads to several addresses.
        server: path of tritonserver's Unix socket; empty for a gateway before several servers.
        gateways: ``host:port`` of the gateways of several servers, each of them complete, of which one after
            the other is asked.
        open_models: models that clients may use.
        max_request_bytes: size of the largest request.
        stages: models that can't be told to stop for a client that has left; open in development only.
        max_pending_bytes: size of all requests together that tritonserver has not begun to answer; it copies
            them into shared memory, which never shrinks.
        shared: directory that the processes of the server's run share; empty for a gateway that leaves
            refusals to the models.
        whole_models: by a streaming model's name, the model that answers its unary calls.
        arrival_timeout_s: longest time in which a request must arrive.
        stalled_client_timeout_s: longest time in which a client may read nothing of its answer.
        audit_file: path of the audit log; empty for none.
        max_connection_age_s: age at which a gRPC connection is told to go away; 0 for none.
        ready_file: path of a file that is there when all models have been loaded; empty for none.
        names: host names, besides localhost and addresses, that HTTP clients may use; None for any.
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
    max_connection_age_s: float = 0.0
    ready_file: str = ""
    names: tuple[str, ...] | None = None
    gateways: tuple[str, ...] = ()

    @property
    def starting(self) -> bool:
        """Whether models are still being loaded, while tritonserver may call itself ready."""
        return bool(self.ready_file) and not os.path.exists(self.ready_file)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> GatewayOptions:
        values: dict[str, Any] = json.loads(text)
        return cls(
            **values | {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        )
