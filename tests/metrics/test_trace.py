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


class Span:
    """A span that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, float]]] = []

    def add_event(self, name, attributes=None):
        self.events.append((name, attributes or {}))


def test_a_span_shows_what_readers_of_traces_want(monkeypatch):
    times = iter(range(100))
    monkeypatch.setattr(trace, "now", lambda: next(times))
    span = Span()
    noted = trace.NotedSpan(span, ["request"])
    noted.note("it is admitted", "request")
    for event in ("the speech LM has the request", "the speech LM begins", "a token is drawn"):
        noted.note(event, "segment")
    noted.note("a token is drawn", "segment")  # before the first group is whole
    noted.note("token2wav has the chunk", "segment")
    for _ in range(2):
        noted.note("its batch begins", "segment")
        noted.note("its batch is launched", "segment")
        noted.note("its batch ends", "segment")
        noted.note("the engine has sent audio", "request")
    second = {"wait_ms": 1000, "compute_ms": 2000}
    assert span.events == [
        ("admitted", {}),
        ("prefill", {"wait_ms": 1000, "compute_ms": 1000}),
        ("token2wav turn", second),
        ("first chunk", {}),
        ("token2wav turn", second),
    ]


def test_nothing_is_noted_of_what_has_no_span():
    with trace.utterance("part", headers={"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}):
        assert trace.request() == ""
        trace.tell(characters=3)
        trace.note("it is admitted")
