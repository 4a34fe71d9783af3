"""JSON of clients to objects."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json

from cosyvoice_front.errors import invalid, too_large
from cosyvoice_front.shown import shown

MOST_VALUES = 32_768
"""In one body or message. A value takes a hundred bytes and microseconds: 16 MiB of brackets would stop all
other clients for a minute. Every API here has about twenty fields, and a text of commas alone has room."""


def read_object(text: str | bytes, what: str = "message") -> dict[str, Any]:
    """Read a JSON object.

    Args:
        text: its JSON.
        what: its name in an error.

    Raises:
        ApiError: it is no JSON object, or has too many values.
    """
    _check_count(text)
    try:
        content = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise invalid(None, f"The {what} is no JSON: {error}.") from None
    if not isinstance(content, dict):
        raise invalid(None, f"The {what} is no JSON object: {shown(content)}.")
    return content


def _check_count(text: str | bytes) -> None:
    """Raise an ApiError where there may be too many values: each but the first follows one of these marks."""
    marks = (b",", b"[", b"{") if isinstance(text, bytes) else (",", "[", "{")
    if sum(map(text.count, marks)) > MOST_VALUES:  # type: ignore[arg-type]  # all of the text's own kind
        raise too_large(f"{MOST_VALUES} values of JSON")
