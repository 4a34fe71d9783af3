"""Moments of utterances are told apart, whatever name a process knows an utterance by."""

from __future__ import annotations

from contextvars import copy_context

import pytest

from cosyvoice_runtime.metrics import moments


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(moments, "_FOLDER", str(tmp_path))
    return tmp_path


def _request(name: str) -> None:
    moments.begin()
    moments.note("taken")
    moments.also(name)


def test_moments_under_another_name_are_the_requests(folder):
    for name in "ab":
        copy_context().run(_request, name)
    moments.note("computed", "b", "a")
    moments.note("probed", "")
    noted = moments.read(folder)
    by_name = {name: [each.utterance for each in noted if each.name == name] for _, _, name in noted}
    first, second = by_name["taken"]
    assert first != second
    assert by_name == {"taken": [first, second], "computed": [second, first], "probed": ["-"]}
    assert [each.at for each in noted] == sorted(each.at for each in noted)


def test_nothing_is_written_unasked(tmp_path, monkeypatch):
    monkeypatch.setattr(moments, "_FOLDER", None)
    monkeypatch.chdir(tmp_path)
    _request("a")
    moments.note("computed", "a")
    assert not list(tmp_path.iterdir())
