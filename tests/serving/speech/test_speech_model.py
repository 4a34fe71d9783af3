"""Requests that come to the entry models: each ends once, whatever is wrong with it."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from triton_python_backend_utils import TRITONSERVER_RESPONSE_COMPLETE_FINAL, InferenceRequest

from cosyvoice_runtime.engine.host_client import SPEECH, HostClient, host_socket, request_frame
from cosyvoice_runtime.errors import StageError
from cosyvoice_runtime.metrics.metrics import DIRECTORY_VARIABLE
from cosyvoice_runtime.process.headers import LEFT_HEADER
from cosyvoice_runtime.serving.speech import model as module

LEAVING = json.dumps({LEFT_HEADER: "call"})


class Service:
    """Stands for the service and for the engine: remembers calls whose clients have left."""

    token_rate = 25

    def __init__(self) -> None:
        self.left: list[str] = []

    def leave(self, call: str) -> None:
        self.left.append(call)

    async def close(self) -> None:
        """Nothing is open."""


class ServedModel(module.SpeechModel):
    """Over a service of its own."""

    async def _load(self) -> Any:
        self._engine = self.service = Service()
        return self.service


@pytest.fixture
def run_folder() -> Iterator[Path]:
    """A folder whose path is short enough for the name of a socket in it."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture(params=[True, False], ids=["cosyvoice2", "cosyvoice2_offline"])
def model(request, monkeypatch, tmp_path, run_folder) -> ServedModel:
    monkeypatch.setattr(module, "read_settings", lambda *_: None)
    monkeypatch.setattr(module, "keep_loaded", lambda: None)
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(run_folder))
    served = ServedModel()
    policy = {"model_transaction_policy": {"decoupled": request.param}}
    served.initialize(
        {
            "model_repository": str(tmp_path / "cosyvoice2"),
            "model_name": "cosyvoice2",
            "model_config": json.dumps(policy),
        }
    )
    return served


def errors_of(model: ServedModel, request: InferenceRequest) -> list[str]:
    """What the client reads; its request ends once."""
    model.execute([request])
    model.finalize()
    assert request.sender.flags.count(TRITONSERVER_RESPONSE_COMPLETE_FINAL) == 1
    assert request.sender.flags[-1] == TRITONSERVER_RESPONSE_COMPLETE_FINAL
    return [str(response.error()) for response in request.sender.responses if response.error() is not None]


def test_client_that_left_is_acknowledged(model):
    request = InferenceRequest({}, parameters=LEAVING)
    assert errors_of(model, request) == []
    assert model.service.left == ["call"]
    [response] = request.sender.responses
    assert {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}["waveform"].size == 0


def test_message_whose_sender_is_gone_ends(model, monkeypatch):
    request = InferenceRequest({}, parameters=LEAVING)
    monkeypatch.setattr(request.sender, "is_cancelled", lambda: True)
    errors_of(model, request)
    assert model.service.left == ["call"]


def test_parameters_that_cannot_be_read_are_an_error(model):
    [error] = errors_of(model, InferenceRequest({}, parameters="{"))
    assert "cosyvoice2: internal error (JSONDecodeError)" in error


def test_inputs_that_cannot_be_read_are_an_error(model, monkeypatch):
    request = InferenceRequest({})
    monkeypatch.setattr(request, "inputs", lambda: 1 / 0)
    [error] = errors_of(model, request)
    assert "cosyvoice2: internal error (ZeroDivisionError)" in error


async def offline(parameters: str) -> dict[str, Any] | None:
    """What the proxy cosyvoice2_offline gets for a request."""
    client = HostClient(host_socket(SPEECH))
    call = client.call("cosyvoice2_offline")
    try:
        await call.begin(request_frame("cosyvoice2_offline", "", {}, parameters=parameters))
        return await call.next()
    finally:
        call.leave()
        client.close()


def test_cosyvoice2_answers_what_its_proxy_is_asked_with_the_headers_that_came(model):
    answer = asyncio.run(offline(LEAVING))
    assert answer is not None
    assert answer["waveform"].size == 0
    assert model.service.left == ["call"]
    model.finalize()
    assert not host_socket(SPEECH).exists()


def test_error_of_a_request_to_the_proxy_is_that_of_its_model(model):
    with pytest.raises(StageError, match=r"^cosyvoice2_offline: internal error \(JSONDecodeError\)"):
        asyncio.run(offline("{"))
    model.finalize()
