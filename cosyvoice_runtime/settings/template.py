"""Filling of ``${name}`` placeholders in a model configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from cosyvoice_runtime.errors import CosyVoiceError

PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")
ESCAPED = re.compile(r"\\(.)")


class TemplateError(CosyVoiceError):
    """A template and the values for it do not fit each other."""


def placeholders(text: str) -> set[str]:
    """Names of all ``${name}`` in a text."""
    return set(PLACEHOLDER.findall(text))


def fill(text: str, values: Mapping[str, str], source: str) -> str:
    """Replace every placeholder; values are escaped to stand between the quotes of a text protobuf.

    Args:
        source: the template's name, for the error.

    Raises:
        TemplateError: a placeholder has no value.
    """
    require_filled(placeholders(text), values, source)
    return PLACEHOLDER.sub(lambda match: escape(values[match[1]]), text)


def require_filled(wanted: Iterable[str], values: Mapping[str, str], source: str) -> None:
    missing = sorted(set(wanted) - set(values))
    if missing:
        raise TemplateError(f"{source}: no value for {_listed(missing)}")


def require_used(wanted: Iterable[str], values: Mapping[str, str], source: str) -> None:
    """Raises: TemplateError: a value is given that no placeholder asks for."""
    unused = sorted(set(values) - set(wanted))
    if unused:
        raise TemplateError(f"{source}: no placeholder for {_listed(unused)}")


def escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def unescape(text: str) -> str:
    """What was escaped."""
    return ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], text)


def _listed(names: list[str]) -> str:
    return ", ".join(f"${{{name}}}" for name in names)
