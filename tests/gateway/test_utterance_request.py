"""Who asks, and whether an utterance begins: read from requests of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2
from tritonclient.utils import serialize_byte_tensor

from cosyvoice_runtime.gateway.request_check import UtteranceRequest

EVENTS = {
    "open": True,
    "push": False,
    "flush": False,
    "end": False,
    "cancel": False,
    "": False,
    "Open": False,
}
"""By event, whether an utterance takes a place with it."""


def grpc_request(raw: bool, **texts: str) -> Any:
    request = service_pb2.ModelInferRequest(model_name="m")
    for name, text in texts.items():
        tensor = request.inputs.add(name=name, datatype="BYTES", shape=[1, 1])
        if raw:
            array = np.array([[text.encode()]], np.object_)
            request.raw_input_contents.append(serialize_byte_tensor(array).item())
        else:
            tensor.contents.bytes_contents.append(text.encode())
    return request


def infer_body(**texts: str) -> dict[str, Any]:
    shape = {"shape": [1, 1], "datatype": "BYTES"}
    return {"inputs": [{"name": name, "data": [text], **shape} for name, text in texts.items()]}


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("event", EVENTS)
def test_utterance_begins_with_the_message_that_opens_it(event, raw):
    request = grpc_request(raw, target_text="open", text_event=event, utterance_id="x" * 16)
    assert UtteranceRequest.of_grpc(request, None).begins == EVENTS[event]


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("event", EVENTS)
def test_the_same_by_generate(event, wrapped):
    body = {"target_text": "open", "text_event": [event] if wrapped else event}
    assert UtteranceRequest.of_generate("m", body, None).begins == EVENTS[event]


@pytest.mark.parametrize("value", [None, 1, {}, ["open", "open"]])
def test_event_that_is_none_is_left_to_the_model(value):
    assert not UtteranceRequest.of_generate("m", {"text_event": value}, None).begins


def test_text_in_pieces_by_infer_is_left_to_the_model():
    body = infer_body(target_text="Hello.", text_event="open")
    assert not UtteranceRequest.of_infer("m", body, None).begins


def test_whole_text_takes_a_place():
    assert UtteranceRequest.of_grpc(grpc_request(True, target_text="Hello."), None).begins
    assert UtteranceRequest.of_infer("m", infer_body(target_text="Hello."), None).begins
    assert UtteranceRequest.of_generate("m", {"target_text": "Hello."}, None).begins


@pytest.mark.parametrize(("header", "name"), [("proxy's", "proxy's"), ("", ""), (None, "own")])
def test_header_says_who_asks_and_else_a_parameter(header, name):
    request = grpc_request(True, target_text="Hello.")
    request.parameters["X-Client-Id"].string_param = "own"
    body = {"parameters": {"X-Client-Id": "own"}}
    assert UtteranceRequest.of_grpc(request, header) == UtteranceRequest("m", name)
    assert UtteranceRequest.of_infer("m", body, header) == UtteranceRequest("m", name)
    assert UtteranceRequest.of_generate("m", body["parameters"], header) == UtteranceRequest("m", name)


def test_name_that_is_a_number_is_its_digits():
    request = grpc_request(True, target_text="Hello.")
    request.parameters["x-client-id"].int64_param = 7
    assert UtteranceRequest.of_grpc(request, None).client == "7"
    assert UtteranceRequest.of_generate("m", {"x-client-id": 7}, None).client == "7"


def test_parameter_without_a_value_names_nobody():
    request = grpc_request(True, target_text="Hello.")
    request.parameters["x-client-id"].SetInParent()
    assert UtteranceRequest.of_grpc(request, None).client == ""


def test_turns_take_a_place_and_their_characters_are_not_counted():
    texts = {"target_text": "", "turns": '[{"voice": "anna", "text": "Hi."}]'}
    for asked in (
        UtteranceRequest.of_grpc(grpc_request(True, **texts), None),
        UtteranceRequest.of_grpc(grpc_request(False, **texts), None),
        UtteranceRequest.of_infer("m", infer_body(**texts), None),
        UtteranceRequest.of_generate("m", texts, None),
    ):
        assert (asked.begins, asked.voice, asked.characters) == (True, None, None)
