"""Chunks whose tokens come from the speech LM of the same process, once they are there."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from coded_waves import BAD_TOKEN, BROKEN_TOKEN, CodedWaves, OneVoice, runtime
from test_wave_requests import Count, answers, number, request, text
from triton_python_backend_utils import InferenceRequest, TritonError

from cosyvoice_runtime.errors import NotFoundError
from cosyvoice_runtime.serving.lm.first_tokens import Spoken, TakeTokens
from cosyvoice_runtime.serving.token2wav import WaveRouter, WaveScheduler, WaveService
from cosyvoice_runtime.serving.token2wav import model as module
from cosyvoice_runtime.settings import Token2WavSettings

CANCELLED = 99


class HeldTokens:
    """A speech LM whose streams say what a test hands over, when it does.

    Attributes:
        takes: whoever waits for the first tokens, by the stream.
        at_once: handed over as soon as somebody asks for it.
        refusal: raised instead.
    """

    def __init__(self) -> None:
        self.takes: dict[str, TakeTokens] = {}
        self.at_once: Spoken | None = None
        self.refusal: Exception | None = None

    def first_tokens(self, request_id: str, take: TakeTokens) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.takes[request_id] = take
        if self.at_once is not None:
            take(self.at_once)


@pytest.fixture
def speech_lm() -> HeldTokens:
    return HeldTokens()


@pytest.fixture
def open_model(monkeypatch):
    """``open_model(speech_lm)``: the served model with networks whose samples are the tokens."""
    opened: list[module.WaveModel] = []

    def open_model(speech_lm: HeldTokens | None) -> module.WaveModel:
        waves = CodedWaves()
        service = WaveService(waves, OneVoice(), max_utterances=8, idle_timeout_s=60.0)
        router = WaveRouter([WaveScheduler(service, runtime(waves, 4), 8, 1.0)])
        monkeypatch.setattr(module, "load_wave_service", lambda *_: router)
        opened.append(module.WaveModel(Token2WavSettings(), speech_lm=speech_lm))
        return opened[-1]

    monkeypatch.setattr(module, "RequestCount", Count)
    monkeypatch.setattr(TritonError, "CANCELLED", CANCELLED, raising=False)
    yield open_model
    for model in opened:
        model.finalize()


@pytest.fixture
def model(open_model, speech_lm) -> module.WaveModel:
    return open_model(speech_lm)


def spoken_later(name: str = "u", stream: bytes = b"s", **changes: Any) -> InferenceRequest:
    return request(name, **{"speech_tokens": None, "tokens_of": text(stream), **changes})


def answered(model: module.WaveModel, one: InferenceRequest) -> Any:
    """The samples, or the error, of a request that has been begun."""
    model.count.wait()
    [response] = one.sender.responses
    return response.error() or response.output_tensors()[0].as_numpy()[0].tolist()


def test_chunk_is_computed_of_the_tokens_that_are_handed_over_and_not_before(model, speech_lm):
    waiting = spoken_later()
    model.execute([waiting])
    assert list(speech_lm.takes) == ["s"]
    assert waiting.sender.responses == []
    speech_lm.takes["s"](Spoken([3, 4, 5], last=False))
    assert answered(model, waiting) == [3, 4, 5]
    assert waiting.sender.flags == [1]


def test_chunks_that_wait_hold_up_nobody_and_get_the_tokens_of_their_own_streams(model, speech_lm):
    waiting = [spoken_later(f"u{place}", b"s%d" % place) for place in range(3)]
    other = request("other", (9, 8))
    model.execute([*waiting, other])
    for place in (2, 0, 1):
        speech_lm.takes[f"s{place}"](Spoken([place], last=False))
    assert [answered(model, one) for one in (*waiting, other)] == [[0], [1], [2], [9, 8]]


def test_tokens_may_be_there_at_once(model, speech_lm):
    speech_lm.at_once = Spoken([1, 2], last=True)
    assert answers(model, spoken_later()) == [[1, 2]]


@pytest.mark.parametrize("asked_as_last", [False, True])
@pytest.mark.parametrize("last", [False, True])
def test_whether_the_chunk_is_the_last_is_said_with_its_tokens(model, speech_lm, last, asked_as_last):
    first = spoken_later(last=np.array([[asked_as_last]]))
    model.execute([first])
    speech_lm.takes["s"](Spoken([1, 2], last))
    assert answered(model, first) == [1, 2]
    [second] = answers(model, request("u", (3,), position=number(2, np.int32)))
    if last:
        assert second.code() == TritonError.NOT_FOUND
        assert str(second).startswith("utterance_id: 'u' is unknown")
    else:
        assert second == [3]


def test_stream_without_tokens_ends_its_utterance(model, speech_lm):
    speech_lm.at_once = Spoken([], last=True)
    assert answers(model, spoken_later(), request("other", (7,))) == [[], [7]]


def test_tokens_beside_the_name_of_a_stream_are_not_read(model, speech_lm):
    speech_lm.at_once = Spoken([5], last=True)
    tokens = np.array([[1.5]], np.float32)
    assert answers(model, spoken_later(speech_tokens=tokens)) == [[5]]


def test_stream_that_ends_unheard_has_its_chunk_withdrawn_and_the_model_goes_on(model, speech_lm):
    waiting = spoken_later()
    model.execute([waiting])
    speech_lm.takes["s"](None)
    error = answered(model, waiting)
    assert str(error).startswith("token2wav: tokens_of: the stream ended, or was left, before")
    assert error.code() == CANCELLED
    assert answers(model, request("u", (1, 2))) == [[1, 2]]


def test_without_a_speech_lm_in_the_process_the_input_is_refused(open_model):
    error, other = answers(open_model(None), spoken_later(), request("other", (7,)))
    assert str(error) == "tokens_of: 's' is not accepted; the speech LM computes in another process"
    assert error.code() == TritonError.INVALID_ARG
    assert other == [7]


@pytest.mark.parametrize(
    ("refusal", "code", "message"),
    [
        (NotFoundError("tokens_of", "s", "it has ended"), TritonError.NOT_FOUND, "tokens_of: 's' is unknown"),
        (RuntimeError("no such thing"), TritonError.INTERNAL, "token2wav: internal error (RuntimeError)"),
    ],
)
def test_refusal_of_the_speech_lm_is_the_requests_answer_alone(model, speech_lm, refusal, code, message):
    speech_lm.refusal = refusal
    before, error, after = answers(model, request("a", (1,)), spoken_later(), request("b", (2,)))
    assert (before, after) == ([1], [2])
    assert error.code() == code
    assert str(error).startswith(message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position": None}, "position: None"),
        ({"last": None}, "last: None"),
        ({"voice_key": None}, "voice_key: None"),
        ({"tokens_of": text(b"\xff\xfe")}, "tokens_of: b'\\xff"),
        ({"tokens_of": np.array([[b"a"], [b"b"]], np.object_)}, "tokens_of: (2,)"),
    ],
)
def test_request_that_makes_no_sense_waits_for_no_tokens(model, speech_lm, changes, message):
    [error] = answers(model, spoken_later(**changes))
    assert str(error).startswith(message)
    assert error.code() == TritonError.INVALID_ARG
    assert speech_lm.takes == {}


@pytest.mark.parametrize(
    ("changes", "tokens", "code", "message"),
    [
        ({}, [1.5], TritonError.INVALID_ARG, "speech_tokens: 1.5"),
        ({}, [BAD_TOKEN], TritonError.INVALID_ARG, f"speech_tokens: {BAD_TOKEN}"),
        ({}, [BROKEN_TOKEN], TritonError.INTERNAL, "token2wav: internal error (RuntimeError)"),
        ({"cushion": number(np.nan, np.float32)}, [1], TritonError.INVALID_ARG, "cushion: nan"),
        ({"position": number(3, np.int32)}, [1], TritonError.NOT_FOUND, "utterance_id: 'u' is unknown"),
        ({"voice_key": text(b"new")}, [1], TritonError.NOT_FOUND, "voice_key: 'new' is unknown"),
    ],
)
def test_chunk_that_can_not_be_computed_disturbs_neither_the_speech_lm_nor_others(
    model, speech_lm, changes, tokens, code, message
):
    waiting = spoken_later(**changes)
    model.execute([waiting])
    speech_lm.takes["s"](Spoken(tokens, last=False))
    error = answered(model, waiting)
    assert error.code() == code
    assert str(error).startswith(message)
    assert answers(model, request("other", (7,))) == [[7]]


def test_tokens_that_come_when_the_model_has_ended_disturb_nobody(open_model, speech_lm):
    model = open_model(speech_lm)
    waiting = spoken_later()
    model.execute([waiting])
    model.finalize()
    speech_lm.takes["s"](Spoken([1], last=False))
    assert str(answered(model, waiting)) == "token2wav: token2wav has ended"


def test_tokens_come_from_whichever_thread(model, speech_lm):
    waiting = [spoken_later(f"u{place}", b"s%d" % place) for place in range(8)]
    model.execute(waiting)
    givers = [
        threading.Thread(target=take, args=(Spoken([place, place], last=True),))
        for place, take in enumerate(speech_lm.takes.values())
    ]
    for giver in givers:
        giver.start()
    assert [answered(model, one) for one in waiting] == [[place, place] for place in range(8)]
