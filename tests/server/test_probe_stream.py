"""How a probe leaves its stream, told by a client that only says how it was called."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from cosyvoice_runtime.supervisor import Probe, probe

FINAL = SimpleNamespace(bool_param=True)
RESPONSE = SimpleNamespace(outputs=["VALUE"], parameters={"triton_final_response": FINAL})
ANSWER = (SimpleNamespace(get_response=lambda: RESPONSE), None)


class Client:
    """Answers the request with ``answers``, pairs of a result and an error."""

    def __init__(self, *answers: tuple[object, object]) -> None:
        self.cancelled: bool | None = None
        self._answers = answers

    def start_stream(self, callback) -> None:
        self._callback = callback

    def async_stream_infer(self, model, inputs, enable_empty_final_response) -> None:
        assert enable_empty_final_response
        for answer in self._answers:
            self._callback(*answer)

    def stop_stream(self, cancel_requests) -> None:
        self.cancelled = cancel_requests

    def close(self) -> None:
        assert self.cancelled is not None


def send_probe(monkeypatch, client: Client) -> None:
    monkeypatch.setattr(probe.triton, "InferenceServerClient", lambda url: client)
    Probe("count", {"COUNT": np.ones(1, np.int32)})("localhost:1", 0.0)


def error(message: str) -> tuple[None, InferenceServerException]:
    return None, InferenceServerException(message)


@pytest.mark.parametrize("answer", [ANSWER, error("2 utterances are in progress; try again later")])
def test_stream_that_has_ended_is_not_cancelled(monkeypatch, answer):
    client = Client(answer)
    send_probe(monkeypatch, client)
    assert client.cancelled is False


@pytest.mark.parametrize("answers", [(), [error("its process died")]], ids=["silence", "error"])
def test_stream_that_may_go_on_is_cancelled(monkeypatch, answers):
    client = Client(*answers)
    with pytest.raises(probe.ProbeError):
        send_probe(monkeypatch, client)
    assert client.cancelled is True
