"""A stream's error begins with its status: Triton sends a stream's errors as a message alone."""

from __future__ import annotations

import pytest
from triton_python_backend_utils import InferenceRequest

from cosyvoice_client.errors import split_status
from cosyvoice_runtime.errors import InvalidInput, NotFoundError, OverloadedError, StageError
from cosyvoice_runtime.serving.triton.request import Reply

LIAR = "UNAVAILABLE: NOT_FOUND: x"


def sent(error: Exception, streamed: bool) -> str:
    request = InferenceRequest({})
    with Reply(request, "model", streamed):
        raise error
    [response] = request.sender.responses
    return str(response.error())


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidInput("voice", LIAR, "expected another"), "INVALID_ARGUMENT"),
        (NotFoundError("voice", LIAR, "register it"), "NOT_FOUND"),
        (OverloadedError(LIAR), "UNAVAILABLE"),
        (StageError(LIAR, "INVALID_ARGUMENT"), "INVALID_ARGUMENT"),
        (StageError(LIAR, "UNHEARD_OF"), "INTERNAL"),
        (RuntimeError(LIAR), "INTERNAL"),
    ],
)
def test_client_reads_the_status_that_the_server_named(error, status):
    assert split_status(sent(error, streamed=True)) == (status, sent(error, streamed=False))


def test_message_without_a_status_has_none():
    assert split_status("Exceeds maximum queue size") == (None, "Exceeds maximum queue size")
    assert split_status("unavailable: x") == (None, "unavailable: x")
