"""Requests as Triton passes them to the model: one that makes no sense gets an error, and it alone."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from coded_waves import CodedWaves, OneVoice, runtime
from triton_python_backend_utils import InferenceRequest, TritonError

from cosyvoice_runtime.engine.batches import WaveRouter, WaveScheduler, WaveService
from cosyvoice_runtime.serving.hosted import token2wav as module
from cosyvoice_runtime.serving.triton.request import Inputs
from cosyvoice_runtime.settings import Token2WavSettings

TIMEOUT_S = 120.0


@pytest.fixture
def model(monkeypatch):
    """The served model with networks whose samples are the tokens; closed after the test."""
    waves = CodedWaves()
    service = WaveService(waves, OneVoice(), idle_timeout_s=60.0)
    router = WaveRouter([WaveScheduler(service, runtime(waves, 4), 8, 1.0)])
    monkeypatch.setattr(module, "open_router", lambda *_: router)
    monkeypatch.setattr(module, "RequestCount", Count)
    model = module.WaveModel(Token2WavSettings())
    yield model
    model.finalize()


class Count:
    """Of requests that have no answer yet."""

    def __init__(self, _: str) -> None:
        self._changed = threading.Condition()
        self._count = 0

    def enter(self) -> None:
        with self._changed:
            self._count += 1

    def leave(self) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def wait(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: not self._count, TIMEOUT_S)


def request(name: str = "bad", tokens: tuple[int, ...] = (1, 2), **changes) -> InferenceRequest:
    tensors = {
        "utterance_id": np.array([[name.encode()]], np.object_),
        "speech_tokens": np.array([tokens], np.int32),
        "position": np.array([[0]], np.int32),
        "last": np.array([[True]]),
        "voice_key": np.array([[b"known"]], np.object_),
        "noise_seed": np.array([[7]], np.int64),
        "speed": np.array([[1.0]], np.float32),
    }
    return InferenceRequest({key: array for key, array in (tensors | changes).items() if array is not None})


def answers(model, *requests: InferenceRequest):
    model.execute(requests)
    model.count.wait()
    found = []
    for one in requests:
        [response] = one.sender.responses
        error = response.error()
        found.append(error or response.output_tensors()[0].as_numpy()[0].tolist())
    return found


def text(value: bytes) -> np.ndarray:
    return np.array([[value]], np.object_)


def number(value: object, dtype: type) -> np.ndarray:
    return np.array([[value]], dtype)


MALFORMED = {
    "utterance_id: b'\\xff": {"utterance_id": text(b"\xff\xfe")},
    "utterance_id: 'xxxx": {"utterance_id": text(b"x" * 1_000_000)},
    "utterance_id: ''": {"utterance_id": text(b"")},
    "utterance_id: None": {"utterance_id": None},
    "utterance_id: (2,)": {"utterance_id": np.array([[b"a"], [b"b"]], np.object_)},
    "speech_tokens: None": {"speech_tokens": None},
    "speech_tokens: 1.5": {"speech_tokens": np.array([[1.5]], np.float32)},
    "position: -1": {"position": number(-1, np.int32)},
    "position: (2,)": {"position": np.zeros((1, 2), np.int32)},
    "position: 0.5": {"position": number(0.5, np.float32)},
    "cushion: nan": {"cushion": number(np.nan, np.float32)},
    "cushion: inf": {"cushion": number(np.inf, np.float32)},
    "cushion: -1.0": {"cushion": number(-1, np.float32)},
    "cushion: 'soon'": {"cushion": number("soon", np.str_)},
    "voice_key: ''": {"voice_key": text(b"")},
    "voice_key: 'kkkk": {"voice_key": text(b"k" * 300)},
    "noise_seed: -1": {"noise_seed": number(-1, np.int64)},
    "noise_seed: 1.5": {"noise_seed": number(1.5, np.float32)},
    "speed: nan": {"speed": number(np.nan, np.float32)},
    "speed: 3.0": {"speed": number(3, np.float32)},
    "prompt_speech_feat: (60,)": {"prompt_speech_feat": np.zeros(60, np.float32)},
    "prompt_speech_feat: (2, 60, 80)": {"prompt_speech_feat": np.zeros((2, 60, 80), np.float32)},
    "prompt_speech_tokens: None": {"prompt_speech_feat": np.zeros((1, 60, 80), np.float32)},
}


@pytest.mark.parametrize("message", MALFORMED)
def test_malformed_request_is_refused_by_the_inputs_name_and_touches_no_other(model, message):
    first, error, second = answers(
        model, request("a", (3, 4)), request(**MALFORMED[message]), request("b", (5,))
    )
    assert (first, second) == ([3, 4], [5])
    assert str(error).startswith(message)
    assert error.code() == TritonError.INVALID_ARG


@pytest.mark.parametrize("continues", [None, False, True])
def test_request_says_whether_somebody_listens_already(continues):
    changes = {} if continues is None else {"continues": np.array([[continues]])}
    assert module.decode(Inputs(request(**changes))).continues is bool(continues)
