"""Calls whose server is gone, by the statuses that gRPC and proxies make up for them."""

from __future__ import annotations

import grpc
import pytest

from cosyvoice_client.errors import LostError, RefusedError, UnavailableError
from cosyvoice_client.wire import REQUEST_HEADER, call_error

Code = grpc.StatusCode


def ended(code: grpc.StatusCode, details: str, *trailing: tuple[str, str]) -> Exception:
    """The error for a call that ended so."""
    failure = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details)
    return call_error(failure, "server:8001")


@pytest.mark.parametrize(
    ("code", "details"),
    [
        (Code.UNAVAILABLE, "Socket closed"),
        (Code.UNKNOWN, "Stream removed (RST_STREAM (Received RST_STREAM with error code 2))"),
        (Code.INTERNAL, "Received RST_STREAM with error code 2"),
        # These two come from a server that begins to stop just as a call arrives.
        (Code.CANCELLED, "CANCELLED"),
        (Code.INTERNAL, "Internal error from Core"),
    ],
)
def test_call_that_nobody_has_ended_is_lost(code, details):
    assert type(ended(code, details)) is LostError


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        (Code.UNAVAILABLE, "4 utterances are in progress; try again in 1 s", UnavailableError),
        (Code.INTERNAL, "Internal error from Core", RefusedError),
        (Code.CANCELLED, "CANCELLED", RefusedError),
    ],
)
def test_call_that_a_gateway_has_ended_is_what_it_says(code, details, kind):
    assert type(ended(code, details, (REQUEST_HEADER, "one"))) is kind


def test_error_of_another_server_is_what_it_says():
    assert type(ended(Code.INTERNAL, "the model has failed")) is RefusedError
