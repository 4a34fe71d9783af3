"""A CosyVoice-300M checkpoint, through the whole chain on a real server, against the library."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soxr
from speaking import FEW_STEPS, TIMEOUT_S, assert_same_audio, client, recording, spoken

from cosyvoice_client import AsyncSpeechClient, AudioChunk, Reference, RefusedError, SpeechRequest
from cosyvoice_client.http_client import HttpSpeechClient
from cosyvoice_front.keys import EVERYBODY
from cosyvoice_front.server_client import SpeechServer
from cosyvoice_runtime.audio.audio import reference_audio
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.local import SpeechRequest as LibraryRequest
from cosyvoice_runtime.local import Synthesizer
from cosyvoice_runtime.supervisor import Server
from making import make_checkpoint

RATE = 22_050
FIRST = 38_912
"""Samples of the first chunk of a stream that has several."""
WORDS = "<|en|>Hello world. How are you, and what do you do when the evening comes?"
SEED = 5
MOST_TOKENS = 150
SAMPLING = SamplingOptions(max_tokens=MOST_TOKENS, top_p=float(np.float32(0.8)), tau=float(np.float32(0.1)))
"""Of the server by default; its tensors have single precision."""
CASES = {
    "reference": {"reference": Reference(recording(150), text="a short reference")},
    "cross-lingual": {"reference": Reference(recording(150)), "cross_lingual": True},
    "speaker": {"voice": "default"},
    "instruct": {"voice": "default", "instruct_text": "A calm and friendly woman.<|endofprompt|>"},
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("family") / "tiny", "tiny", seed=0, family="cosyvoice300m")


@pytest.fixture(scope="module")
def synthesizer(checkpoint: Path) -> Synthesizer:
    return Synthesizer.from_checkpoint(checkpoint, ode_steps=FEW_STEPS)


@pytest.fixture(scope="module")
def server(serve_all, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    texts = {
        "checkpoint_dir": checkpoint,
        "cosyvoice2.voices_dir": tmp_path_factory.mktemp("voices"),
        "cosyvoice2.silence_timeout_s": 600,
    }
    with serve_all(**texts) as server:
        yield server


def in_process(synthesizer: Synthesizer, options: dict, **how: object) -> np.ndarray:
    voice, instruct = synthesizer.speakers["default"], options.get("instruct_text")
    if "reference" in options:
        reference = options["reference"]
        voice = synthesizer.voice(reference_audio(reference.samples, 16_000, None), reference.text)
    request = LibraryRequest(
        WORDS,
        voice,
        instruct_text=instruct,
        cross_lingual=options.get("cross_lingual", False),
        seed=SEED,
        sampling=SAMPLING,
        **how,
    )
    return np.concatenate([chunk.samples for chunk in synthesizer.synthesize(request)])


def asked(options: dict, **how: object) -> SpeechRequest:
    return SpeechRequest(WORDS, seed=SEED, max_tokens=MOST_TOKENS, **options, **how)


@pytest.mark.parametrize("mode", CASES)
def test_stream_and_whole_utterance_are_the_librarys(server, synthesizer, mode):
    options = CASES[mode]
    chunks = list(client(server).speak(asked(options)))
    whole = HttpSpeechClient(server.http_url, timeout_s=TIMEOUT_S).synthesize(asked(options))
    assert [len(chunk.samples) for chunk in chunks][:-1] == [FIRST]
    assert {(chunk.sample_rate, chunk.token_rate) for chunk in [*chunks, whole]} == {(RATE, 50)}
    assert chunks[-1].finish_reason == whole.finish_reason
    streamed = np.concatenate([chunk.samples for chunk in chunks])
    assert_same_audio(streamed, in_process(synthesizer, options))
    assert_same_audio(whole.samples, in_process(synthesizer, options, streaming=False))
    assert np.abs(streamed).max() > 0.01


@pytest.mark.parametrize("streaming", [True, False])
def test_speed_is_heard_in_streams_too(server, synthesizer, streaming):
    request = asked(CASES["speaker"], speed=2.0)
    if streaming:
        samples = np.concatenate([chunk.samples for chunk in client(server).speak(request)])
    else:
        samples = HttpSpeechClient(server.http_url, timeout_s=TIMEOUT_S).synthesize(request).samples
    plain = in_process(synthesizer, CASES["speaker"], streaming=False)
    assert abs(len(samples) - len(plain) / 2) <= 256
    assert_same_audio(samples, in_process(synthesizer, CASES["speaker"], speed=2.0, streaming=streaming))


def test_front_speaks_at_the_rate_of_openais_api(server, synthesizer):
    async def heard() -> list[AudioChunk]:
        upstream = AsyncSpeechClient(server.grpc_url, timeout_s=TIMEOUT_S)
        front = SpeechServer(upstream)
        try:
            return [chunk async for chunk in front.speak(asked(CASES["speaker"]), "front", EVERYBODY)]
        finally:
            await front.close()

    chunks = asyncio.run(asyncio.wait_for(heard(), TIMEOUT_S))
    assert {chunk.sample_rate for chunk in chunks} == {24_000}
    samples = np.concatenate([chunk.samples for chunk in chunks])
    expected = soxr.resample(in_process(synthesizer, CASES["speaker"]), RATE, 24_000)
    assert abs(len(samples) - len(expected)) <= 1
    both = min(len(samples), len(expected))
    assert np.corrcoef(samples[:both], expected[:both])[0, 1] > 0.99


def test_text_in_pieces_is_spoken_clause_by_clause(server, synthesizer):
    clauses = ["Where did she put it? ", "No idea. ", "It is late; go on."]

    async def heard() -> np.ndarray:
        async with (
            AsyncSpeechClient(server.grpc_url, timeout_s=TIMEOUT_S) as client,
            client.speak_text(SpeechRequest("", seed=SEED, max_tokens=MOST_TOKENS)) as speech,
        ):
            for clause in clauses:
                await speech.push(clause)
            await speech.end()
            return np.concatenate([chunk.samples async for chunk in speech])

    request = LibraryRequest("", synthesizer.speakers["default"], seed=SEED, sampling=SAMPLING)
    expected = np.concatenate([chunk.samples for chunk in synthesizer.synthesize_pieces(clauses, request)])
    assert_same_audio(asyncio.run(asyncio.wait_for(heard(), TIMEOUT_S)), expected)


def test_unknown_speaker_is_refused_by_field(server):
    with pytest.raises(RefusedError, match="voice: "):
        spoken(server, SpeechRequest(WORDS, voice="nobody"))
