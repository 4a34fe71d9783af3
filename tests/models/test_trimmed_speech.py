"""Silence that is left out of speech, on a real server with the demo voice and a reference that is silent at
both ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from speaking import assert_same_audio, client, spoken

from cosyvoice_client import Reference, RefusedError, SpeechRequest
from cosyvoice_client.http_client import HttpSpeechClient
from cosyvoice_runtime.audio.read import read_audio
from cosyvoice_runtime.audio.silence import AUDIBLE_RMS
from cosyvoice_runtime.supervisor import Server

DEMO_VOICE = Path(__file__).parents[2] / "demo_voice"
TEXT = "The weather in Paris will be fine on Monday."
RATE = 24_000
LEAST = RATE // 10
"""Samples of silence at each end at least; there are 0.2 s."""


@pytest.fixture(scope="module")
def server(serve_all, tmp_path_factory) -> Iterator[Server]:
    texts = {"checkpoint_dir": DEMO_VOICE, "token2wav.ode_steps": 10, "cosyvoice2.silence_timeout_s": 600}
    with serve_all(**texts, **{"cosyvoice2.voices_dir": tmp_path_factory.mktemp("voices")}) as server:
        yield server


@pytest.fixture(scope="module")
def plain() -> SpeechRequest:
    recorded = read_audio(DEMO_VOICE / "reference.flac")
    silence = np.zeros(2 * recorded.rate, np.float32)
    samples = np.concatenate([silence, recorded.samples, silence])
    words = (DEMO_VOICE / "reference.txt").read_text("utf-8").strip()
    return SpeechRequest(TEXT, Reference(samples, words, recorded.rate), seed=1)


def test_speech_is_the_same_without_its_silence_streamed_and_whole(server, plain, metric):
    whole = spoken(server, plain)
    trimmed = {trim: dataclasses.replace(plain, trim_silence=trim) for trim in ("start", "both")}
    chunks = list(client(server).speak(trimmed["start"]))
    assert chunks[0].samples.std() > AUDIBLE_RMS
    start = np.concatenate([chunk.samples for chunk in chunks])
    assert len(whole) - len(start) > LEAST
    assert_same_audio(start, whole[-len(start) :])
    both = spoken(server, trimmed["both"])
    assert len(start) - len(both) > LEAST
    assert_same_audio(both, start[: len(both)])
    for end, seconds in (("start", 2 * (len(whole) - len(start))), ("end", len(start) - len(both))):
        counted = metric(server, "cosyvoice_trimmed_seconds_total", model="cosyvoice2", end=end)
        assert counted == pytest.approx(seconds / RATE)
    first_audio, first_audible = (
        metric(server, f"cosyvoice_first_{what}_seconds_count", model="cosyvoice2")
        for what in ("audio", "audible")
    )
    assert first_audio == first_audible >= 3
    answer = HttpSpeechClient(server.http_url).synthesize(trimmed["both"])
    assert_same_audio(answer.samples, both)
    assert answer.finish_reason == chunks[-1].finish_reason == "stop"


def test_another_value_is_refused(server, plain):
    with pytest.raises(RefusedError, match="trim_silence: 'end' is not accepted; one of off, start, both"):
        spoken(server, dataclasses.replace(plain, trim_silence="end"))
