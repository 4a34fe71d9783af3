"""JSON that costs more than it says: it is counted before anything is made of it."""

from __future__ import annotations

import json

import pytest

from cosyvoice_front.errors import ApiError
from cosyvoice_front.json_object import MOST_VALUES, read_object
from cosyvoice_front.shown import MOST_SHOWN, shown
from raw_http import ask, send
from wire_client import OPENING, asked, open_cartesia, open_omni

DEEP = b"[" * 150 + b"]" * 150
NESTED = {
    "lists": b"[%b]" % b",".join([b"[]"] * (5 << 20)),
    "deep lists": b"[%b]" % b",".join([DEEP] * 55_000),
    "objects": b"[%b]" % b",".join([b'{"a":{}}'] * 1_800_000),
    "numbers": b"[%b]" % b",".join([b"1"] * (7 << 20)),
}
VERSION = {"Cartesia-Version": "2026-03-01"}


@pytest.mark.parametrize("path", ["/v1/audio/speech", "/tts/bytes"])
@pytest.mark.parametrize("kind", NESTED)
def test_megabytes_of_nested_values_are_refused_by_their_count(front, path, kind):
    for body in (b'{"a": %b}' % NESTED[kind], NESTED[kind], b'{"input": %b, "model": "tts-1"' % NESTED[kind]):
        answer = send(front, path=path, body=body, **VERSION)
        assert answer.status == 413
        assert f"{MOST_VALUES} values of JSON" in json.dumps(json.loads(answer.body))


def test_configuration_of_nested_values_is_refused_by_their_count(front):
    with open_omni(front) as wire:
        wire.send(json.dumps({"type": "session.config", "a": [[]] * 100_000}))
        assert wire.error()["status_code"] == 413


def test_message_of_nested_values_leaves_the_socket_open(front):
    with open_cartesia(front) as wire:
        wire.send({"a": [[]] * 20_000})
        assert wire.error()["status_code"] == 413
        wire.send(asked())
        wire.until("done")


def test_text_of_commas_alone_is_taken(start_front):
    front = start_front(max_text_characters=10_000)
    marks = ",[{" * 3333
    assert ask(front, input=marks, instructions=marks[:4096]).status == 200


def test_count_is_the_limit_and_one_more_is_refused():
    most = MOST_VALUES - len("{[,")
    assert len(read_object(json.dumps({"a": [0] * most, "b": 0}))["a"]) == most
    with pytest.raises(ApiError, match="too large"):
        read_object(json.dumps({"a": [0] * (most + 2), "b": 0}))


@pytest.mark.parametrize(
    "value", [["x"] * MOST_VALUES, "x" * (16 << 20), {"a": {"a": {"a": {"a": {}}}}}, 10**4000, None]
)
def test_value_in_an_error_is_short(value):
    assert len(shown(value)) <= MOST_SHOWN + len("...")


@pytest.mark.parametrize("field", ["model", "voice", "seed", "response_format"])
def test_error_of_a_large_value_is_small(front, field):
    answer = ask(front, **{field: ["x" * 1000] * 10_000})
    assert (answer.status, answer.error["param"]) == (400, field)
    assert len(answer.body) < 500


def test_error_of_a_large_value_on_a_socket_is_small(front):
    with open_cartesia(front) as wire:
        wire.send(OPENING | {"voice": ["x" * 1000] * 100})
        assert len(json.dumps(wire.error())) < 700


def test_fields_that_nobody_knows_are_ignored_as_before(front):
    assert ask(front, user="me", metadata={"a": [1, 2, {"b": None}]}).status == 200
