"""HyperPyYAML as plain data: nothing that a tag names is ever imported or called.

``!new:a.b.C`` (likewise ``!name:``, ``!apply:``, ``!module:`` and any other tag) becomes a :class:`Tagged`
node, ``!ref <key>`` a :class:`YamlReference`. References are resolved on request, to scalars only, so that a
hostile file can neither run code nor grow in memory.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from cosyvoice_runtime.errors import CheckpointError, shorten

MAX_BYTES = 1 << 20
"""The published file has about 8 kB."""
UNREADABLE = (yaml.YAMLError, ValueError, LookupError, ArithmeticError, AttributeError, RecursionError)
"""Errors of PyYAML for text that its tags say is something else, such as a date with a month 99."""
MAX_NUMBER = 1e12
"""No size in a configuration is larger; stops chains of multiplications."""

OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
REFERENCE = re.compile(r"<([^<>]+)>")


@dataclass(frozen=True)
class Tagged:
    """A node with a tag of its own, e.g. tag ``!new:cosyvoice.llm.llm.Qwen2LM``."""

    tag: str
    arguments: Any

    @property
    def class_name(self) -> str:
        return self.tag.rpartition(".")[2]


@dataclass(frozen=True)
class YamlReference:
    """``!ref``: one ``<key>``, or arithmetic over such keys and numbers."""

    expression: str


class _Loader(yaml.SafeLoader):
    """SafeLoader without aliases that keeps unknown tags as data."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(problem="aliases are not accepted")
        return super().compose_node(parent, index)

    def construct_tagged(self, suffix: str, node: yaml.Node) -> Tagged | YamlReference:
        if suffix == "ref":
            return YamlReference(str(node.value))
        return Tagged(f"!{suffix}", self._construct_plain(node))

    def _construct_plain(self, node: yaml.Node) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self.construct_mapping(node, deep=True)
        if isinstance(node, yaml.SequenceNode):
            return self.construct_sequence(node, deep=True)
        return node.value


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 (the base class's signature)
        return True

    def represent_tagged(self, node: Tagged) -> yaml.Node:
        return self.represent_mapping(node.tag, node.arguments)

    def represent_reference(self, node: YamlReference) -> yaml.Node:
        return self.represent_scalar("!ref", node.expression)


# YAML 1.1 reads 1e-06 as text since it has no point; HyperPyYAML reads a number.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)
_Loader.add_multi_constructor("!", _Loader.construct_tagged)
_Dumper.add_representer(Tagged, _Dumper.represent_tagged)
_Dumper.add_representer(YamlReference, _Dumper.represent_reference)


def read(path: Path) -> dict[str, Any]:
    """Top-level keys of a HyperPyYAML file, tags and references kept as nodes; a CheckpointError for a bad
    file."""
    if path.stat().st_size > MAX_BYTES:
        raise CheckpointError(f"{path}: larger than {MAX_BYTES} bytes, which no configuration is")
    try:
        tree = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except UNREADABLE as error:
        raise CheckpointError(f"{path}: not a readable configuration: {error}") from error
    if not isinstance(tree, dict):
        raise CheckpointError(f"{path}: expected keys and values, found {shorten(tree)}")
    return tree


def write(path: Path, tree: Mapping[str, Any]) -> None:
    """Write what :func:`read` gives back equal."""
    path.write_text(yaml.dump(dict(tree), Dumper=_Dumper, sort_keys=False), encoding="utf-8")


@dataclass
class Resolver:
    """Replaces the references below a node by the values of the top-level keys they name."""

    root: Mapping[str, Any]
    _values: dict[str, Any] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)

    def resolve(self, node: Any) -> Any:
        """The node with every reference replaced, tagged nodes kept.

        Raises:
            CheckpointError: a reference names an unknown key, itself, or something that is no scalar.
        """
        if isinstance(node, YamlReference):
            return self._expression(node.expression)
        if isinstance(node, Tagged):
            return Tagged(node.tag, self.resolve(node.arguments))
        if isinstance(node, dict):
            return {key: self.resolve(value) for key, value in node.items()}
        if isinstance(node, list):
            return [self.resolve(value) for value in node]
        return node

    def _expression(self, text: str) -> Any:
        whole = REFERENCE.fullmatch(text.strip())
        if whole:
            return self._key(whole[1])
        numbers = REFERENCE.sub(lambda match: repr(self._key(match[1])), text).strip()
        try:
            return _evaluate(ast.parse(numbers, mode="eval").body)
        except (SyntaxError, ValueError, ArithmeticError, RecursionError) as error:
            raise CheckpointError(f"!ref {shorten(text)}: cannot be evaluated: {error}") from error

    def _key(self, key: str) -> Any:
        if key in self._open:
            raise CheckpointError(f"!ref <{key}>: refers to itself")
        if key not in self.root:
            raise CheckpointError(f"!ref <{key}>: no such key")
        if key not in self._values:
            self._open.append(key)
            self._values[key] = self._scalar(key)
            self._open.pop()
        return self._values[key]

    def _scalar(self, key: str) -> Any:
        value = self.root[key]
        if isinstance(value, (dict, list, Tagged)):
            raise CheckpointError(f"!ref <{key}>: only numbers and text are referred to by a model's sizes")
        return self.resolve(value)


def _evaluate(node: ast.expr) -> int | float:
    """Value of + - * / // over numbers; anything else raises ValueError."""
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        value = OPERATORS[type(node.op)](_evaluate(node.left), _evaluate(node.right))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = -_evaluate(node.operand)
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        value = node.value
    else:
        raise ValueError("only + - * / // over numbers")
    if not abs(value) <= MAX_NUMBER:
        raise ValueError(f"larger than {MAX_NUMBER:g}")
    return value
