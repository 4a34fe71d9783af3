"""Requests that Dynamo's frontend hands on are read as the front reads a body."""

from __future__ import annotations

from typing import Any

from cosyvoice_front.errors import invalid
from cosyvoice_front.speech import SpeechBody, checked
from cosyvoice_runtime.settings import FrontSettings

PASSED_ON = "media_passthrough"
"""Where Dynamo's frontend puts the fields that it doesn't know itself."""
BYTES = "b64_json"


def read_request(asked: dict[str, Any], settings: FrontSettings) -> SpeechBody:
    """Read a request of ``/v1/audio/speech``; an ApiError names the field at fault.

    Args:
        asked: its fields, the further ones in ``extra_args``. The model is one of ours.
    """
    further = (asked.get("extra_args") or {}).get(PASSED_ON) or {}
    given = {name: value for name, value in {**further, **asked}.items() if value is not None}
    body = checked({"model": settings.models[0], **given}, settings)
    if body.as_events:
        raise invalid("stream_format", "stream_format: Dynamo's frontend sends no events; ask for audio.")
    if given.get("data_source", BYTES) != BYTES:
        raise invalid("data_source", f"data_source: {given['data_source']!r} is not served; ask for {BYTES}.")
    return body
