"""The facts of a request by which it may be refused, and by which the audit names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cosyvoice_runtime.process.headers import CLIENT_HEADER

EVENT = "text_event"
OPEN = "open"
TEXT, VOICE = "target_text", "voice"
LENGTH_BYTES = 4
OPEN_BYTES = len(OPEN).to_bytes(4, "little") + OPEN.encode()
"""The serialised tensor of this one string."""


@dataclass(frozen=True)
class UtteranceRequest:
    """The facts of one request.

    Attributes:
        model: the model that it calls.
        client: the client's name from a header or a parameter, if there is one.
        takes_place: whether it begins an utterance; other messages belong to one in progress.
        request_id: Triton's, if it has one.
        voice: the named voice; None without one, or if a binary HTTP tensor holds it.
        characters: characters of its text; None if a binary HTTP tensor holds it.
    """

    model: str
    client: str | None
    takes_place: bool = True
    request_id: str = field(default="", compare=False)
    voice: str | None = field(default=None, compare=False)
    characters: int | None = field(default=None, compare=False)

    @classmethod
    def of_grpc(cls, request: Any, header: str | None) -> UtteranceRequest:
        """The facts of a checked ``ModelInferRequest``."""
        client = header
        if client is None and request.parameters:
            client = _name_in({key: _value(chosen) for key, chosen in request.parameters.items()})
        voice, characters = _spoken(_texts_grpc(request))
        return cls(request.model_name, client, _opens_grpc(request), request.id, voice, characters)

    @classmethod
    def of_infer(cls, model: str, request: Mapping[str, Any], header: str | None) -> UtteranceRequest:
        """The facts of an ``infer`` body, which has no text in pieces; the model refuses one that has."""
        client = _name_in(request.get("parameters", {})) if header is None else header
        inputs = request.get("inputs", ())
        voice, characters = _spoken({tensor.get("name"): tensor.get("data") for tensor in inputs})
        opens = all(tensor.get("name") != EVENT for tensor in inputs)
        return cls(model, client, opens, request.get("id", ""), voice, characters)

    @classmethod
    def of_generate(cls, model: str, request: Mapping[str, Any], header: str | None) -> UtteranceRequest:
        """The facts of a ``generate`` or ``generate_stream`` body."""
        client = _name_in(request) if header is None else header
        opens = EVENT not in request or request[EVENT] in (OPEN, [OPEN])
        return cls(model, client, opens, str(request.get("id", "")), *_spoken(request))


def _spoken(inputs: Mapping[Any, Any]) -> tuple[str | None, int | None]:
    """The voice and the number of characters, if they can be read."""
    text = _text(inputs.get(TEXT))
    return _text(inputs.get(VOICE)), None if text is None else len(text)


def _text(value: Any) -> str | None:
    while isinstance(value, list) and len(value) == 1:
        [value] = value
    return value if isinstance(value, str) else None


def _texts_grpc(request: Any) -> dict[str, str]:
    raw, texts = request.raw_input_contents, {}
    for index, tensor in enumerate(request.inputs):
        if tensor.name in (TEXT, VOICE):
            data = raw[index][LENGTH_BYTES:] if raw else b"".join(tensor.contents.bytes_contents)
            texts[tensor.name] = data.decode("utf-8", "replace")
    return texts


def _opens_grpc(request: Any) -> bool:
    for index, tensor in enumerate(request.inputs):
        if tensor.name == EVENT:
            raw = request.raw_input_contents
            if raw:
                return bool(raw[index] == OPEN_BYTES)
            return list(tensor.contents.bytes_contents) == [OPEN.encode()]
    return True


def _name_in(parameters: Mapping[str, Any]) -> str | None:
    """The client's name, read as the models read it."""
    names = [value for key, value in parameters.items() if key.lower() == CLIENT_HEADER]
    return str(names[-1]) if names else None


def _value(parameter: Any) -> Any:
    chosen = parameter.WhichOneof("parameter_choice")
    return "" if chosen is None else getattr(parameter, chosen)
