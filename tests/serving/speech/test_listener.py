"""Listeners of an utterance: a final response on every path, and the worst reason of several segments."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
from triton_python_backend_utils import TRITONSERVER_RESPONSE_COMPLETE_FINAL, InferenceRequest

from cosyvoice_runtime.engine.utterance.request import AudioChunk
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.serving.speech import service
from cosyvoice_runtime.serving.speech.speech_inputs import ChunkListener, WholeListener
from cosyvoice_runtime.serving.triton.request import ClientGoneError, Reply


def chunk(segment: int, reason: FinishReason | None) -> AudioChunk:
    return AudioChunk(np.full(3, segment / 10, np.float32), 24_000, segment, reason)


def heard(request: InferenceRequest, chunks: Sequence[AudioChunk]) -> BaseException | None:
    """Send chunks and end as the service does; the error that the listener's own sending raised."""
    listener = WholeListener(Reply(request, "cosyvoice2_offline", streamed=False), token_rate=25)
    error: BaseException | None = None
    try:
        for each in chunks:
            listener.send(each)
        listener.complete()
    except Exception as failure:
        error = failure
    listener.finish(error)
    return error


@pytest.mark.parametrize(
    ("reasons", "told"),
    [
        (["stop"], "stop"),
        (["stop", "length"], "length"),
        (["length", "stop"], "length"),
        (["repetition", "length", "stop"], "repetition"),
    ],
)
def test_whole_answer_has_all_samples_and_the_worst_reason(reasons, told):
    request = InferenceRequest({})
    segments = [
        part
        for segment, reason in enumerate(reasons)
        for part in (chunk(segment, None), chunk(segment, FinishReason(reason)))
    ]
    assert heard(request, segments) is None
    [response] = request.sender.responses
    outputs = {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}
    np.testing.assert_array_equal(outputs["waveform"][0], np.concatenate([part.samples for part in segments]))
    assert outputs["finish_reason"].item() == told.encode()
    assert request.sender.flags == [0, TRITONSERVER_RESPONSE_COMPLETE_FINAL]


def test_whole_answer_that_ends_with_a_silence_tells_of_its_characters():
    request = InferenceRequest({})
    spoken = dataclasses.replace(chunk(0, FinishReason.STOP), spoken_characters=12)
    assert heard(request, [spoken, AudioChunk.silent(0.5, 24_000, 1)]) is None
    [response] = request.sender.responses
    outputs = {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()}
    assert (outputs["spoken_characters"].item(), outputs["waveform"].size) == (12, 12_003)


def test_answer_to_a_client_who_left_ends_once(monkeypatch):
    request = InferenceRequest({})
    monkeypatch.setattr(request.sender, "is_cancelled", lambda: True)
    assert isinstance(heard(request, [chunk(0, FinishReason.STOP)]), ClientGoneError)
    [response] = request.sender.responses  # without one Triton doesn't let such a model end
    assert "the client has left" in str(response.error())
    assert request.sender.flags == [TRITONSERVER_RESPONSE_COMPLETE_FINAL]


def test_chunk_is_sent_without_asking_the_server_for_its_client(monkeypatch):
    request, asked = InferenceRequest({}), []
    monkeypatch.setattr(request.sender, "is_cancelled", lambda: bool(asked.append(True)))
    listener = ChunkListener(Reply(request, "cosyvoice2"), token_rate=25)
    listener.send(chunk(0, None))
    assert (len(request.sender.responses), asked) == (1, [])
    assert not listener.gone
    assert asked == [True]


def test_clients_who_left_are_found_where_the_server_cannot_say_it_of_one(monkeypatch, caplog):
    class Unknown:
        @property
        def gone(self):
            raise RuntimeError("no shared memory")

    left, there = SimpleNamespace(gone=True), SimpleNamespace(gone=False)
    assert service._gone({1: Unknown(), 2: left, 3: there}) == [2]
    assert "can't say whether a client is there" in caplog.text


def test_answer_that_cannot_be_made_ends_with_its_error():
    request = InferenceRequest({})
    assert isinstance(heard(request, []), Exception)  # nothing was spoken
    [response] = request.sender.responses
    assert response.error() is not None
    assert request.sender.flags == [TRITONSERVER_RESPONSE_COMPLETE_FINAL]
