"""Base of every section of the settings: checked when made, read from text, written as text."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import textwrap
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings.rule import Rule, parse, write

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


@dataclass(frozen=True)
class Section:
    """Fields declared with :mod:`~cosyvoice_runtime.settings.rule` and documented by a string below each.

    Raises:
        InvalidInput: a value is out of its field's range; the error names section and field.
    """

    name: ClassVar[str]

    def __post_init__(self) -> None:
        for entry, kind, rule in _fields(type(self)):
            value = getattr(self, entry.name)
            if not _is(value, kind) or not rule.accepts(value):
                raise InvalidInput(f"{self.name}.{entry.name}", value, rule.limit(kind))

    @classmethod
    def field_names(cls) -> tuple[str, ...]:
        return tuple(entry.name for entry in dataclasses.fields(cls))

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
            raise InvalidInput(f"{cls.name}.parameters", sorted(texts), f"{', '.join(missing)} missing")
        return cls().with_texts(texts)

    def with_texts(self, texts: Mapping[str, str]) -> Self:
        """A copy in which the named fields have these values, given as text."""
        kinds = {entry.name: (kind, rule) for entry, kind, rule in _fields(type(self))}
        values: dict[str, Any] = {}
        for key, text in texts.items():
            if key not in kinds:
                raise unknown_key(f"{self.name}.{key}", text, self.field_names())
            kind, rule = kinds[key]
            try:
                values[key] = parse(text, kind, rule)
            except (ValueError, KeyError) as error:
                raise InvalidInput(f"{self.name}.{key}", text, rule.limit(kind)) from error
        return dataclasses.replace(self, **values)

    def placeholders(self) -> dict[str, str]:
        """Every field as text: what a template's ``${field}`` stands for."""
        return {entry.name: write(getattr(self, entry.name), rule) for entry, _, rule in _fields(type(self))}

    def resolved(self, machine: Machine) -> Self:  # noqa: ARG002 - sections with auto values override it
        """A copy without ``auto`` and without relative paths."""
        return self

    @classmethod
    def describe(cls) -> list[FieldDoc]:
        """Name, default, limit and doc line of every field, for a table."""
        docs = _doc_lines(cls)
        defaults = cls().placeholders()
        return [
            FieldDoc(entry.name, defaults[entry.name], rule.limit(kind), docs[entry.name])
            for entry, kind, rule in _fields(cls)
        ]


def unknown_key(key: str, value: object, known: tuple[str, ...]) -> InvalidInput:
    """Error for a key that no section has, with the nearest one that exists."""
    near = difflib.get_close_matches(key.rpartition(".")[2], known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    return InvalidInput(key, value, f"there is no such setting; {hint}")


def _fields(cls: type[Section]) -> Iterator[tuple[dataclasses.Field[Any], object, Rule]]:
    hints = typing.get_type_hints(cls)
    for entry in dataclasses.fields(cls):
        yield entry, hints[entry.name], entry.metadata.get("rule", Rule())


def _is(value: object, kind: object) -> bool:
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, typing.get_origin(kind) or kind)  # type: ignore[arg-type]


def _doc_lines(cls: type[Section]) -> dict[str, str]:
    """The string below each field, read from the source: Python keeps none at run time."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        tree = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(tree, ast.ClassDef)
        for above, below in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(above, ast.AnnAssign) and isinstance(below, ast.Expr):
                docs[ast.unparse(above.target)] = ast.literal_eval(below.value)
    return docs
