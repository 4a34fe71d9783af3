"""What a field of the settings accepts, in words, and its form as text."""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le
from pydantic import BeforeValidator, WrapValidator
from pydantic.fields import FieldInfo

AUTO: Literal["auto"] = "auto"
"""Accepted in place of a value that is then chosen for the machine."""
EXACT: Literal["exact"] = "exact"
"""Accepted in place of a number: as much as the networks reach, so that nothing is approximated."""
AUTO_NUMBER = 0
"""Stands for ``auto`` in a field that holds a number; such a field's own range starts above it."""


@dataclass(frozen=True)
class Accepted:
    """What a field accepts, in words, where its type and its range do not say it."""

    words: str


def _auto_or_number(value: object, check: Callable[[object], float]) -> float:
    return AUTO_NUMBER if value in (AUTO, AUTO_NUMBER) and value is not False else check(value)


def _split_commas(value: object) -> object:
    if not isinstance(value, str):
        return value
    return tuple(part.strip() for part in value.split(",") if part.strip())


def _read_grpc_address(value: object) -> object:
    from cosyvoice_client.address import grpc_address
    from cosyvoice_client.errors import InvalidArgumentError

    try:
        return grpc_address(value) if isinstance(value, str) else value
    except InvalidArgumentError as error:
        raise ValueError(str(error)) from None


def _read_flag(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value.strip().lower() not in ("true", "false"):
        raise ValueError("neither true nor false")
    return value.strip().lower() == "true"


OR_AUTO = WrapValidator(_auto_or_number)
"""Put behind the range of a number: it is chosen for the machine unless given."""
Flag = Annotated[bool, BeforeValidator(_read_flag)]
"""Written ``true`` or ``false``, and no other of the words that pydantic knows."""
GrpcAddress = Annotated[str, BeforeValidator(_read_grpc_address), Accepted("host:port or unix:/path")]
"""Written with http:// or grpc:// before it and a slash behind it, too."""
Names = Annotated[tuple[str, ...], BeforeValidator(_split_commas), Accepted("names with commas between")]
OptionalPath = Annotated[str, Accepted("a path, or nothing")]


def limit(field: FieldInfo) -> str:
    """What a field accepts, in words, for an error and for a table of settings."""
    for mark in field.metadata:
        if isinstance(mark, Accepted):
            return mark.words
    if typing.get_origin(field.annotation) is Literal:
        return _choices(typing.get_args(field.annotation))
    if field.annotation in (int, float):
        return _range(field)
    return {bool: "true or false", Path: "a path"}.get(field.annotation, "a text")  # type: ignore[arg-type]


def to_text(value: object, field: FieldInfo) -> str:
    """The text that is read back as ``value``."""
    if OR_AUTO in field.metadata and value == AUTO_NUMBER:
        return AUTO
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _choices(words: tuple[str, ...]) -> str:
    others = "one of " + ", ".join(word for word in words if word != AUTO)
    return f"{others} or {AUTO}" if AUTO in words else others


def _range(field: FieldInfo) -> str:
    low = next(mark.ge for mark in field.metadata if isinstance(mark, Ge))
    high = next(mark.le for mark in field.metadata if isinstance(mark, Le))
    noun = "a whole number" if field.annotation is int else "a number"
    return f"{noun} from {low:g} to {high:.9g}" + (f" or {AUTO}" if OR_AUTO in field.metadata else "")
