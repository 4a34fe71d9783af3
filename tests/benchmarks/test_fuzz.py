"""Requests of the fuzzer, and how it judges answers."""

from __future__ import annotations

import random

import pytest

import fuzz
from cosyvoice_runtime.serving.triton.schema import SCHEMAS
from fuzzing.changes import CHANGES, changed_request, garbled
from fuzzing.request import valid_request
from fuzzing.sender import Answer


def test_same_seed_and_number_give_the_same_request():
    first, again = fuzz.request_of(3, 77), fuzz.request_of(3, 77)
    assert (first.change, first.tensors) == (again.change, again.tensors)
    assert len({fuzz.request_of(3, number).change for number in range(500)}) > len(CHANGES) / 2


@pytest.mark.parametrize("model", SCHEMAS)
def test_valid_request_has_inputs_of_its_model_in_their_types(model):
    specs = {spec.name: spec for spec in SCHEMAS[model].inputs}
    for seed in range(20):
        for tensor in valid_request(random.Random(seed), model).tensors:
            assert tensor.datatype == {"STRING": "BYTES"}.get(
                specs[tensor.name].type, specs[tensor.name].type
            )
            assert len(tensor.shape) == 1 + len(specs[tensor.name].dims)


def test_every_kind_of_change_can_be_made_of_every_request():
    for seed in range(2000):
        changed_request(random.Random(seed))


def test_garbled_bytes_differ_or_are_shorter():
    kept = [garbled(b"some bytes", random.Random(seed)) == b"some bytes" for seed in range(200)]
    assert sum(kept) < 20


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer("OK"), None),
        (Answer("INVALID_ARGUMENT", "speed: 3.0 is not accepted; 0.5 to 2"), None),
        (Answer("INVALID_ARGUMENT", "voice: '/a/b' is not accepted; a name"), None),
        (Answer("UNAVAILABLE", "64 utterances are in progress, the limit; try again later"), None),
        (Answer("HANG"), "hang"),
        (Answer("LOST", "ServerDisconnectedError()"), "crash"),
        (Answer("UNAVAILABLE", "the model is being started; try again later"), "crash"),
        (Answer("INTERNAL", "token2wav: internal error (KeyError)"), "generic error"),
        (Answer("INVALID_ARGUMENT", "in /srv/models/1/model.py"), "generic error"),
        (Answer("UNAVAILABLE", "no"), "refused without need"),
    ],
)
def test_answers_are_judged(answer, kind):
    assert fuzz.fault(answer) == kind
