"""The steps of a first audio lie between events that a trace has."""

from __future__ import annotations

import ast
from itertools import pairwise
from pathlib import Path

import cosyvoice_runtime
import first_audio

SOURCES = Path(cosyvoice_runtime.__file__).parent.rglob("*.py")


def noted(source: Path) -> set[str]:
    """Names of the events that a file notes."""
    calls = [node for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))) if is_note(node)]
    return {call.args[0].value for call in calls}


def is_note(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "trace.note"


def test_each_step_begins_where_the_one_before_ends_and_its_events_are_noted():
    *steps, _, _ = first_audio.STEPS
    assert all(end == begin for (_, end, _), (begin, _, _) in pairwise(steps))
    events = set[str]().union(*map(noted, SOURCES))
    assert {event for begin, end, _ in steps for event in (begin, end)} - events == {
        first_audio.ASKED,
        first_audio.HEARD,
    }
