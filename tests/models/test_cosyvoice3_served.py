"""A CosyVoice3 checkpoint, through the whole chain on a real server, against the library."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from speaking import FEW_STEPS, TIMEOUT_S, assert_same_audio, client, recording, spoken

from cosyvoice_client import AsyncSpeechClient, Reference, RefusedError, SpeechRequest
from cosyvoice_client.http_client import HttpSpeechClient
from cosyvoice_runtime.audio.audio import reference_audio
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.local import SpeechRequest as LibraryRequest
from cosyvoice_runtime.local import Synthesizer
from cosyvoice_runtime.supervisor import Server
from making import make_checkpoint
from served_library import served_library

PREFIX = "You are a helpful assistant.<|endofprompt|>"
WORDS = "Hello world. How are you?"
INSTRUCTION = "Please say a sentence in a very soft voice."
CLAUSES = ["Where did she put the 3.14 of it? ", "No idea. ", "It is late; go on."]
SEED = 5
MOST_TOKENS = 120
SAMPLING = SamplingOptions(max_tokens=MOST_TOKENS, top_p=float(np.float32(0.8)), tau=float(np.float32(0.1)))
"""Of the server by default; its tensors have single precision."""
CASES = {
    "reference": ({"reference": Reference(recording(150), text=f"{PREFIX}a short reference")}, WORDS),
    "named voice": ({"voice": "default"}, PREFIX + WORDS),
    "instruct": ({"voice": "default", "instruct_text": INSTRUCTION}, WORDS),
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("family") / "tiny", "tiny", seed=0, family="cosyvoice3")


@pytest.fixture(scope="module")
def synthesizer(checkpoint: Path) -> Synthesizer:
    return served_library(checkpoint, ode_steps=FEW_STEPS)


@pytest.fixture(scope="module")
def server(serve_all, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    texts = {
        "checkpoint_dir": checkpoint,
        "cosyvoice2.voices_dir": tmp_path_factory.mktemp("voices"),
        "cosyvoice2.silence_timeout_s": 600,
        "token2wav.max_flow_pages": 64,
    }
    with serve_all(**texts) as server:
        yield server


def in_process(synthesizer: Synthesizer, text: str, options: dict) -> np.ndarray:
    voice, instruct = synthesizer.speakers["default"], options.get("instruct_text")
    if "reference" in options:
        reference = options["reference"]
        voice = synthesizer.voice(reference_audio(reference.samples, 16_000, None), reference.text)
    request = LibraryRequest(text, voice, instruct_text=instruct, seed=SEED, sampling=SAMPLING)
    return np.concatenate([chunk.samples for chunk in synthesizer.synthesize(request)])


@pytest.mark.parametrize("mode", CASES)
def test_streamed_offline_and_library_say_the_same(server, synthesizer, mode):
    options, text = CASES[mode]
    request = SpeechRequest(text, seed=SEED, max_tokens=MOST_TOKENS, **options)
    chunks = list(client(server).speak(request))
    assert len(chunks) > 1
    streamed = np.concatenate([chunk.samples for chunk in chunks])
    whole = HttpSpeechClient(server.http_url, timeout_s=TIMEOUT_S).synthesize(request)
    assert chunks[-1].finish_reason == whole.finish_reason
    assert_same_audio(streamed, whole.samples)
    assert_same_audio(streamed, in_process(synthesizer, text, options))
    assert np.abs(streamed).max() > 0.01


def test_a_checkpoint_without_speakers_is_served(serve_all, checkpoint, tmp_path):
    """As some are published: whoever speaks with it brings a reference."""
    shutil.copytree(checkpoint, tmp_path / "bare")
    for file in ("spk2info.pt", "SHA256SUMS"):
        (tmp_path / "bare" / file).unlink()
    with serve_all(checkpoint_dir=tmp_path / "bare", **{"cosyvoice2.voices_dir": tmp_path / "v"}) as server:
        reference = Reference(recording(150), text=f"{PREFIX}a short reference")
        assert len(spoken(server, SpeechRequest(WORDS, reference, seed=SEED, max_tokens=20)))
        with pytest.raises(RefusedError, match="voice: 'default'"):
            spoken(server, SpeechRequest(PREFIX + WORDS))


def test_words_without_an_instruction_are_refused_by_field(server):
    with pytest.raises(
        RefusedError, match=r"target_text: .*cosyvoice3 needs an instruction .*<\|endofprompt"
    ):
        spoken(server, SpeechRequest(WORDS))
    told = Reference(recording(150), text="a short reference")
    with pytest.raises(RefusedError, match=r"reference_text: .*<\|endofprompt"):
        spoken(server, SpeechRequest(WORDS, told))


def test_text_in_pieces_behind_an_instruction_equals_the_library(server, synthesizer):
    request = SpeechRequest("", instruct_text=INSTRUCTION, seed=SEED, max_tokens=MOST_TOKENS)

    async def heard() -> np.ndarray:
        async with (
            AsyncSpeechClient(server.grpc_url, timeout_s=TIMEOUT_S) as client,
            client.speak_text(request) as speech,
        ):
            for clause in CLAUSES:
                await speech.push(clause)
            await speech.end()
            return np.concatenate([chunk.samples async for chunk in speech])

    voice = synthesizer.speakers["default"]
    asked = LibraryRequest("", voice, instruct_text=INSTRUCTION, seed=SEED, sampling=SAMPLING)
    expected = np.concatenate([chunk.samples for chunk in synthesizer.synthesize_pieces(CLAUSES, asked)])
    assert_same_audio(asyncio.run(asyncio.wait_for(heard(), TIMEOUT_S)), expected)
