"""What the server has found of speech whose words a request has verified, as clients of the front hear it."""

from __future__ import annotations

import dataclasses
import http.client
from types import SimpleNamespace

import numpy as np
import pytest

from cosyvoice_client import SpeechRequest
from cosyvoice_client.chunk import read_chunk
from decoded import events
from fake_upstream import FakeUpstream, tone
from raw_http import ask, send

FINDING = {"kind": "skipped", "text": "said here", "start": 16, "end": 25}
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
