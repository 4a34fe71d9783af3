"""Traced events of utterances are told apart, whatever name a process knows an utterance by."""

from __future__ import annotations

from contextvars import copy_context

import pytest

from cosyvoice_runtime.metrics import trace


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "_FOLDER", str(tmp_path))
    return tmp_path


def _request(name: str) -> None:
    trace.begin()
    trace.note("taken")
    trace.also(name)


def test_events_under_another_name_are_the_requests(folder):
    for name in "ab":
        copy_context().run(_request, name)
    trace.note("computed", "b", "a")
    trace.note("probed", "")
    noted = trace.read(folder)
    by_name = {name: [each.utterance for each in noted if each.name == name] for _, _, name in noted}
    first, second = by_name["taken"]
    assert first != second
    assert by_name == {"taken": [first, second], "computed": [second, first], "probed": ["-"]}
    assert [each.at for each in noted] == sorted(each.at for each in noted)


def test_nothing_is_written_unasked(tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "_FOLDER", None)
    monkeypatch.chdir(tmp_path)
    _request("a")
    trace.note("computed", "a")
    assert not list(tmp_path.iterdir())
