"""The Helm chart's README follows from its values, and the schema of its values from the settings.

``reference_tables.py`` writes both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from cosyvoice_runtime.settings import Settings
from cosyvoice_runtime.settings.section import OR_AUTO, Section

CHART = Path(__file__).resolve().parent.parent / "deploy" / "helm" / "cosyvoice"
VALUES, SCHEMA, README = CHART / "values.yaml", CHART / "values.schema.json", CHART / "README.md"
START = "<!-- What follows is written by scripts/reference_tables.py from values.yaml. -->\n"
OF_ALL = "the whole chart"
WIDTH = 110
OWNED = {
    "host", "http_port", "grpc_port", "metrics_port", "model_metrics_port", "port", "grpc_url", "log_file",
    "drain_timeout_s", "exit_timeout_s", "checkpoint_dir", "engine_dir", "backend_dir", "voices_dir",
    "voices_url", "api_keys_file", "limits_url", "leave_s",
}  # fmt: skip
"""Settings that the chart itself decides: other parts of it have to agree with them."""
DERIVED = ("title", "default", "format")
"""Keywords of a field's schema that say nothing about which values are accepted."""


def readme() -> str:
    """The page of the chart: what is written by hand, then every value with its default and its comment."""
    by_hand = README.read_text(encoding="utf-8").partition(START)[0]
    lines = VALUES.read_text(encoding="utf-8").splitlines()
    introductions = {OF_ALL: ""}
    tables: dict[str, list[str]] = {OF_ALL: []}
    for name, node, line in _entries(yaml.compose("\n".join(lines))):
        title = name if _is_group(node) else OF_ALL
        if title is name:
            introductions[title] = _comment(lines, line)
        rows = [_row(path, leaf, place, lines) for path, leaf, place in _leaves(name, node, line)]
        tables.setdefault(title, []).extend(rows)
    return by_hand + START + "".join(_table(title, introductions[title], tables[title]) for title in tables)


def _table(title: str, introduction: str, rows: list[str]) -> str:
    paragraph = f"{introduction}\n\n" if introduction else ""
    table = "\n".join(["| value | default | meaning |", "|---|---|---|", *rows])
    return f"\n### {title}\n\n{paragraph}{table}\n"


def _row(name: str, node: yaml.Node, line: int, lines: list[str]) -> str:
    """A row of the table; a KeyError where a value has no comment."""
    meaning = _comment(lines, line)
    if not meaning:
        raise KeyError(f"{VALUES}:{line + 1}: {name} has no comment above it")
    default = lines[line].partition(": ")[2] or json.dumps(yaml.safe_load(yaml.serialize(node)))
    shown = f"`{default}`" if node.value not in ("", []) else ""
    return f"| `{name}` | {shown} | {meaning} |"


def _leaves(name: str, node: yaml.Node, line: int) -> Iterator[tuple[str, yaml.Node, int]]:
    if _is_group(node):
        for key, child, place in _entries(node):
            yield from _leaves(f"{name}.{key}", child, place)
    else:
        yield name, node, line


def _is_group(node: yaml.Node) -> bool:
    return isinstance(node, yaml.MappingNode) and not node.flow_style


def _entries(node: yaml.Node | None) -> Iterator[tuple[str, yaml.Node, int]]:
    """Keys of a mapping, their nodes and the lines of the keys."""
    for key, child in node.value if node else ():
        yield key.value, child, key.start_mark.line


def _comment(lines: list[str], line: int) -> str:
    """The lines of comment right above a line."""
    words: list[str] = []
    while line and (text := lines[line - 1].strip()).startswith("#"):
        words.insert(0, text.lstrip("# "))
        line -= 1
    return " ".join(words)


def schema() -> str:
    """The schema of the values, with what each setting accepts."""
    content = json.loads(SCHEMA.read_text(encoding="utf-8"))
    sections = Settings().sections()
    front = sections.pop("front")
    values = content["properties"]
    values["server"]["properties"]["settings"] = _closed(
        {name: _settings(section) for name, section in sections.items()}
    )
    values["front"]["properties"]["settings"] = _settings(front)
    return "\n".join(_lines(content, "")) + "\n"


def _settings(section: Section) -> dict[str, Any]:
    fields = type(section).model_json_schema()["properties"]
    return _closed({name: _accepted(section, name, fields[name]) for name in fields if name not in OWNED})


def _accepted(section: Section, name: str, field: dict[str, Any]) -> dict[str, Any]:
    rule = {key: value for key, value in field.items() if key not in (*DERIVED, "description")}
    if OR_AUTO in type(section).model_fields[name].metadata:
        return {"anyOf": [rule, {"const": "auto"}]}
    return rule


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _lines(value: Any, indent: str, before: str = "", after: str = "") -> Iterator[str]:
    """JSON of which each line holds as much as fits."""
    whole = f"{indent}{before}{json.dumps(value)}{after}"
    if len(whole) <= WIDTH or not isinstance(value, dict | list):
        yield whole
        return
    items = [(f"{json.dumps(key)}: ", each) for key, each in value.items()] if isinstance(value, dict) else []
    items = items or [("", each) for each in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    yield f"{indent}{before}{opening}"
    for number, (key, each) in enumerate(items, 1):
        yield from _lines(each, f"{indent}  ", key, "," if number < len(items) else "")
    yield f"{indent}{closing}{after}"
