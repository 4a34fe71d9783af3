"""What of a request says whether it may be refused for want of room, and who is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cosyvoice_runtime.headers import CLIENT_HEADER

EVENT = "text_event"
OPEN = "open"
OPEN_BYTES = len(OPEN).to_bytes(4, "little") + OPEN.encode()
"""A tensor of that one string."""


@dataclass(frozen=True)
class UtteranceRequest:
    """
    Attributes:
        model: that is asked.
        client: name of who asks, if that is said: by a header, or else by a parameter.
        takes_place: whether an utterance begins with it. Other messages are for one that is being spoken.
    """

    model: str
    client: str | None
    takes_place: bool = True

    @classmethod
    def of_grpc(cls, request: Any, header: str | None) -> UtteranceRequest:
        """Of a ``ModelInferRequest`` that has been checked."""
        client = header
        if client is None and request.parameters:
            client = _name_in({key: _value(chosen) for key, chosen in request.parameters.items()})
        return cls(request.model_name, client, _opens_grpc(request))

    @classmethod
    def of_infer(cls, model: str, request: Mapping[str, Any], header: str | None) -> UtteranceRequest:
        """Of a body for ``infer``, which brings no text in pieces: what to say about one is the model's."""
        client = _name_in(request.get("parameters", {})) if header is None else header
        inputs = request.get("inputs", ())
        return cls(model, client, all(tensor.get("name") != EVENT for tensor in inputs))

    @classmethod
    def of_generate(cls, model: str, request: Mapping[str, Any], header: str | None) -> UtteranceRequest:
        """Of a body for ``generate`` or ``generate_stream``."""
        client = _name_in(request) if header is None else header
        return cls(model, client, EVENT not in request or request[EVENT] in (OPEN, [OPEN]))


def _opens_grpc(request: Any) -> bool:
    for index, tensor in enumerate(request.inputs):
        if tensor.name == EVENT:
            raw = request.raw_input_contents
            if raw:
                return bool(raw[index] == OPEN_BYTES)
            return list(tensor.contents.bytes_contents) == [OPEN.encode()]
    return True


def _name_in(parameters: Mapping[str, Any]) -> str | None:
    """As the models read it."""
    names = [value for key, value in parameters.items() if key.lower() == CLIENT_HEADER]
    return str(names[-1]) if names else None


def _value(parameter: Any) -> Any:
    chosen = parameter.WhichOneof("parameter_choice")
    return "" if chosen is None else getattr(parameter, chosen)
