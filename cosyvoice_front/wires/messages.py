"""Messages of a websocket to objects."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from cosyvoice_front.errors import ApiError, invalid
from cosyvoice_front.json_object import read_object
from cosyvoice_front.shown import shown


class Message(BaseModel):
    """A message, or a part of one. Fields that are not known here are ignored, as clients send their own."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


M = TypeVar("M", bound=Message)


def read_text(message: str | bytes) -> dict[str, Any]:
    """Read a message's object; an ApiError tells that it is binary or no JSON object."""
    if isinstance(message, bytes):
        raise invalid(None, "Messages are text: a binary one has come.")
    return read_object(message)


def read(kind: type[M], content: dict[str, Any]) -> M:
    """Read a message of a kind; an ApiError names the field, its value and what is expected."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise _first_problem(error) from None


def _first_problem(error: ValidationError) -> ApiError:
    problem = error.errors(include_url=False)[0]
    field = ".".join(map(str, problem["loc"]))
    if problem["type"] == "missing":
        return invalid(field, f"{field}: it is missing.")
    return invalid(field, f"{field}: {shown(problem['input'])}: {problem['msg']}.")
