"""The front's clients hear what the server has found of speech whose words a request has verified."""

from __future__ import annotations

import dataclasses
import http.client
from types import SimpleNamespace

import numpy as np
import pytest

from cosyvoice_client import SpeechRequest
from cosyvoice_client.chunk import read_chunk
from decoded import events
from fake_text import FakeTextSpeech
from fake_upstream import FakeUpstream, tone
from raw_http import ask, send
from wire_client import asked, open_cartesia, open_omni

FINDING = {"kind": "skipped", "text": "said here", "start": 16, "end": 25}
FOUND = {"checked": True, "redraws": 1, "findings": [FINDING]}
OF_SEGMENTS = [
    {"checked": True, "redraws": 1, "findings": []},
    None,
    {"checked": True, "redraws": 2, "findings": [FINDING]},
]


class VerifyingUpstream(FakeUpstream):
    """Tells what it has found with each chunk, if it is asked for, and ends then for this reason."""

    reason = "incomplete"

    async def speak(self, request, request_id="", name=None):
        found = iter(OF_SEGMENTS)
        async for chunk in super().speak(request, request_id, name):
            told = next(found) if request.verify else None
            yield dataclasses.replace(chunk, verification=told, finish_reason=self.reason if told else "stop")

    def speak_text(self, request, request_id="", name=None):
        self.requests.append(request)
        self.texts.append(VerifyingText(self, request))
        return self.texts[-1]


class VerifyingText(FakeTextSpeech):
    """Tells what it has found of each segment, if it is asked for."""

    async def __aiter__(self):
        async for chunk in super().__aiter__():
            told = FOUND if self.request.verify not in (None, "off") and chunk.finish_reason else None
            yield dataclasses.replace(chunk, verification=told)


@pytest.fixture
def upstream():
    return VerifyingUpstream([tone(0.3), tone(0.5), tone(0.8)])


def test_last_event_tells_what_was_found_of_all_segments(front, upstream):
    *_, done = events(ask(front, stream_format="sse", verify="report").body)
    assert done["verification"] == {"checked": True, "redraws": 3, "findings": [FINDING]}
    assert done["finish_reason"] == "incomplete"
    assert upstream.requests[0].verify == "report"


def test_nothing_is_verified_unasked(front, upstream):
    *_, done = events(ask(front, stream_format="sse").body)
    assert "verification" not in done
    assert upstream.requests[0].verify is None


@pytest.mark.parametrize("loudness", [{}, {"target_lufs": -20, "stream": False}])
def test_speech_alone_that_has_stalled_ends_unfinished(front, loudness):
    with pytest.raises(http.client.IncompleteRead) as cut:
        ask(front, verify="retry", response_format="pcm", **loudness)
    assert len(cut.value.partial) == 2 * 24_000 * 16 // 10
    front.wait_until(lambda: front.streams == 0)
    assert 'utterances_total{ending="failed"} 1.0' in send(front, "GET", "/metrics").body.decode()


def test_speech_alone_is_drawn_again_and_has_no_report(front, upstream):
    upstream.reason = "stop"
    assert ask(front, verify="retry").status == 200
    assert upstream.requests[0].verify == "retry"
    for way in ("report", "always"):
        answer = ask(front, verify=way)
        assert (answer.status, answer.error["param"]) == (400, "verify")


@pytest.mark.parametrize("verify", [None, "off", "report", "retry"])
def test_sockets_tell_what_was_found_in_their_last_message(front, upstream, verify):
    asks = {} if verify is None else {"verify": verify}
    with open_cartesia(front) as wire:
        wire.send(asked("One. ", max_buffer_delay_ms=0, **asks, **{"continue": True}))
        wire.send(asked("Two.", max_buffer_delay_ms=0, **asks))
        cartesia = wire.until("done")
    with open_omni(front) as wire:
        config = {"type": "session.config", "response_format": "pcm", **asks}
        wire.send(config, {"type": "input.text", "text": "One."}, {"type": "input.done"})
        omni = [each for each in wire.until("session.done") if isinstance(each, dict)]
    assert [request.verify for request in upstream.requests] == [verify] * 2
    assert not any("verification" in each for each in [*cartesia[:-1], omni[0], omni[-1]])
    if verify in (None, "off"):
        assert "verification" not in cartesia[-1] | omni[-2]
        return
    assert omni[-2]["type"] == "audio.done"
    assert omni[-2]["verification"] == FOUND
    assert omni[-2]["finish_reason"] == cartesia[-1]["finish_reason"] == "stop"
    assert cartesia[-1]["verification"] == {"checked": True, "redraws": 2, "findings": [FINDING, FINDING]}


def test_sockets_refuse_another_way(front, upstream):
    with open_cartesia(front) as wire:
        wire.send(asked("One.", verify="always"))
        assert "verify" in wire.until("error")[-1]["message"]
    with open_omni(front) as wire:
        wire.send({"type": "session.config", "response_format": "pcm", "verify": "always"})
        assert wire.until("error")[-1]["param"] == "verify"
    assert upstream.requests == []


def test_client_sends_and_reads_what_the_server_has():
    assert SpeechRequest("Hello.", verify="retry").tensors()["verify"].item() == b"retry"
    outputs = {
        "waveform": np.zeros((1, 3), np.float32),
        "finish_reason": np.array([[b"stop"]], object),
        "verification": np.array([[b'{"checked": true, "redraws": 0, "findings": []}']], object),
    }
    chunk = read_chunk(SimpleNamespace(as_numpy=outputs.get), 0.0)
    assert chunk.verification == {"checked": True, "redraws": 0, "findings": []}
    del outputs["verification"]
    assert read_chunk(SimpleNamespace(as_numpy=outputs.get), 0.0).verification is None
