"""Base of every section of the settings: checked when made, read from text, written as text."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings.removed import REMOVED
from cosyvoice_runtime.settings.rule import limit, to_text

if TYPE_CHECKING:
    from typing import Self

    from cosyvoice_runtime.settings.machine import Machine

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
        """For fields that are ``auto``: why :meth:`resolved` chooses what it does, where that can be said."""
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
