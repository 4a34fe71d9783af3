"""``cosyvoice2`` in a server that nobody told its own address, as one started by hand: stages through BLS.

One request at a time: the BLS of Triton 2.51 does not stand more.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from cosyvoice_client import RefusedError, SpeechClient, SpeechRequest
from cosyvoice_client.http_client import HttpSpeechClient
from cosyvoice_runtime.supervisor import Server

REQUEST = SpeechRequest("Hello world. How are you?", seed=5)
TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def server(serve_all, tmp_path_factory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cosyvoice_runtime.supervisor.server.GRPC_URL_VARIABLE", "NOBODY_READS_THIS")
        with serve_all(**{"cosyvoice2.voices_dir": tmp_path_factory.mktemp("voices")}) as server:
            yield server


def test_log_says_how_stages_are_called(server):
    assert "stages are called through BLS" in server.settings.log_file.read_text()


def test_streamed_equals_offline(server):
    chunks = list(SpeechClient(server.grpc_url).speak(REQUEST))
    assert len(chunks) > 1
    assert chunks[-1].finish_reason == "stop"
    streamed = np.concatenate([chunk.samples for chunk in chunks])
    whole = HttpSpeechClient(server.http_url).synthesize(REQUEST).samples
    assert streamed.shape == whole.shape
    np.testing.assert_allclose(streamed, whole, atol=TOLERANCE, rtol=0)


def test_bad_input_is_refused_and_the_next_request_served(server):
    with pytest.raises(RefusedError, match="target_text"):
        list(SpeechClient(server.grpc_url).speak(SpeechRequest("  ")))
    assert list(SpeechClient(server.grpc_url).speak(REQUEST))


def test_nothing_is_left_in_the_stages(server, metric, eventually):
    for gauge in ("cosyvoice_lm_active_slots", "cosyvoice_token2wav_utterances"):
        eventually(lambda gauge=gauge: metric(server, gauge) == 0)
