"""Sections of the settings and their fields: checked when made, read from text, written as text."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, WrapValidator, model_validator
from pydantic.fields import FieldInfo

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings.removed import REMOVED

if TYPE_CHECKING:
    from typing import Self

    from cosyvoice_runtime.settings.machine import Machine


AUTO: Literal["auto"] = "auto"
"""The word in place of a value that is then chosen for the machine."""
EXACT: Literal["exact"] = "exact"
"""The word in place of a number for as much as the networks reach, so that nothing is approximated."""
AUTO_NUMBER = 0
"""Stands for ``auto`` in a field that holds a number; such a field's own range starts above it."""


@dataclass(frozen=True)
class Accepted:
    """The words for what a field accepts, where its type and its range do not say it."""

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
"""Marks a number that is chosen for the machine unless given; it stands behind the range."""
Flag = Annotated[bool, BeforeValidator(_read_flag)]
"""A flag is written ``true`` or ``false``, and no other of the words that pydantic knows."""
GrpcAddress = Annotated[
    str,
    BeforeValidator(_read_grpc_address),
    Accepted("host:port, dns:///host:port, several with commas, or unix:/path"),
]
"""An address may have http:// or grpc:// before it and a slash behind it."""
Names = Annotated[tuple[str, ...], BeforeValidator(_split_commas), Accepted("names with commas between")]
OptionalPath = Annotated[str, Accepted("a path, or nothing")]


def limit(field: FieldInfo) -> str:
    """The words for what a field accepts, for an error and for a table of settings."""
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


BACKEND_PARAMETERS = frozenset(
    {"EXECUTION_ENV_PATH", "FORCE_CPU_ONLY_INPUT_TENSORS", "TRITON_BATCH_STRATEGY_PATH"}
)
"""Keys in a model's ``parameters`` that belong to the python backend, not to the model."""


@dataclass(frozen=True)
class FieldDoc:
    """One row of a generated table of settings."""

    name: str
    default: str
    limit: str
    doc: str


class Section(BaseModel):
    """Settings that belong together; each field has a default, its limits and a description.

    A value may be given as text, as files, variables and command lines hold it.

    Raises:
        InvalidInput: a value is out of its field's range, or there is no such field; the error names both
            the section and the field.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: ClassVar[str]

    @model_validator(mode="wrap")
    @classmethod
    def _name_field_and_limit(cls, values: object, check: Callable[[object], Self]) -> Self:
        try:
            return check(values)
        except ValidationError as error:
            raise cls._refusal(error.errors(include_url=False)[0]) from None

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        return tuple(cls.model_fields)

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Mapping[str, str]]) -> Self:
        """Read the ``parameters`` of a Triton model configuration (``{key: {"string_value": text}}``).

        Raises:
            InvalidInput: a key is unknown or missing, or a value is not accepted.
        """
        texts = {
            key: value["string_value"] for key, value in parameters.items() if key not in BACKEND_PARAMETERS
        }
        missing = [key for key in cls.field_names() if key not in texts]
        if missing:
            raise InvalidInput(
                f"{cls.name}.parameters", sorted(texts), f"{', '.join(missing)} missing; stage 2 renders them"
            )
        return cls(**texts)

    def replace(self, **values: object) -> Self:
        """A checked copy in which the named fields have these values, given as such or as text."""
        return type(self)(**(dict(self) | values))

    def placeholders(self) -> dict[str, str]:
        """Every field as text: what a template's ``${field}`` stands for."""
        return {key: to_text(getattr(self, key), field) for key, field in type(self).model_fields.items()}

    def resolved(self, machine: Machine) -> Self:  # noqa: ARG002 - sections with auto values override it
        """A copy without ``auto`` and without relative paths."""
        return self

    def why(self, machine: Machine) -> Mapping[str, str]:  # noqa: ARG002 - sections with reasons override it
        """Reasons of :meth:`resolved` for its choices of ``auto`` fields, where they can be said."""
        return {}

    @classmethod
    def describe(cls) -> list[FieldDoc]:
        """Name, default, limit and description of every field, for a table."""
        defaults = cls().placeholders()
        return [
            FieldDoc(key, defaults[key], limit(field), field.description or "")
            for key, field in cls.model_fields.items()
        ]

    @classmethod
    def _refusal(cls, problem: Mapping[str, Any]) -> InvalidInput:
        key = str(problem["loc"][0])
        if key not in cls.model_fields:
            return unknown_key(f"{cls.name}.{key}", problem["input"], cls.field_names())
        return InvalidInput(f"{cls.name}.{key}", problem["input"], limit(cls.model_fields[key]))


def unknown_key(key: str, value: object, known: tuple[str, ...]) -> InvalidInput:
    """Error for a key that no section has, with what to do instead or with the nearest one that exists."""
    name = key.rpartition(".")[2]
    if remedy := REMOVED.get(key, REMOVED.get(name)):
        return InvalidInput(key, value, f"there is no such setting any more; {remedy}")
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    return InvalidInput(key, value, f"there is no such setting; {hint}")
