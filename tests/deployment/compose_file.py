"""docker-compose.yml as Docker Compose reads it: variables filled in, checked against the specification."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[2]
VARIABLE = re.compile(r"\$\{(\w+)(?::-([^${}]*))?\}")
"""The innermost: a default may be a variable with a default."""
PROFILES = ("gpu", "cpu")
"""Each with one server; monitoring goes with any of them."""

Service = dict[str, Any]


def validator() -> Draft202012Validator:
    """Of the compose specification, from the package that brings its schema."""
    spec = importlib.util.find_spec("check_jsonschema")
    folder = Path(spec.submodule_search_locations[0])
    schema = json.loads((folder / "builtin_schemas" / "vendor" / "compose-spec.json").read_text("utf-8"))
    return Draft202012Validator(schema)


def default_variables() -> dict[str, str]:
    """What .env says."""
    lines = (ROOT / ".env").read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def read(variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The whole file. A variable without value and default is an error."""
    values = default_variables() | dict(variables or {})
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    while VARIABLE.search(text):
        text = VARIABLE.sub(lambda match: _value(match, values), text)
    return yaml.safe_load(text)


def services(profile: str, variables: Mapping[str, str] | None = None) -> dict[str, Service]:
    """Those that a profile starts."""
    found = read(variables)["services"]
    return {name: service for name, service in found.items() if profile in service.get("profiles", [profile])}


def server(profile: str, variables: Mapping[str, str] | None = None) -> Service:
    """The one server of a profile."""
    [service] = services(profile, variables).values()
    return service


def seconds(duration: str) -> float:
    """``1m30s`` and the like."""
    units = {"h": 3600, "m": 60, "s": 1}
    parts = re.findall(r"(\d+)([hms])", duration)
    assert "".join(number + unit for number, unit in parts) == duration, duration
    return sum(int(number) * units[unit] for number, unit in parts)


def mebibytes(size: str) -> float:
    return float(size[:-2]) * {"mb": 1, "gb": 1024}[size[-2:]]


def _value(match: re.Match[str], values: Mapping[str, str]) -> str:
    name, default = match.groups()
    if name not in values and default is None:
        raise KeyError(name)
    return values.get(name) or default or ""
