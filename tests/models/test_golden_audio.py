"""Speech of the three families through a real server, against recordings in ``tests/golden_audio.json``.

Whatever changes inside the server, the same request with the same seed is answered with the same speech
tokens, chunks and samples. After a change that is meant to be heard, the recordings are made again with

    pytest tests/models/test_golden_audio.py --write

Counts and speech tokens are compared exactly. Samples are not: the order in which a CPU adds up a product
depends on its vector instructions and on the number of threads, so the last bits of a float differ between
machines, and a hash of them would, too. Of each block of samples the file holds the root mean square and the
mean, which such differences hardly move. Speech tokens are those of the models `tensorrt_llm` and
`audio_tokenizer`; an answer of `cosyvoice2` shows how many it spoke by its samples.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from speaking import TIMEOUT_S, client, recording
from token_stream import TokenStream
from wave_client import Client

from cosyvoice_client import AsyncSpeechClient, AudioChunk, Reference, SpeechRequest
from cosyvoice_client.http_client import HttpSpeechClient
from cosyvoice_runtime.supervisor import Server
from making import make_checkpoint

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden_audio.json"
TOLERANCE = 5e-4
"""Largest difference of a block's root mean square or mean; full scale is 1.

With PyTorch and two threads in place of ONNX Runtime and one, blocks differ by 3e-4 at most; with another
seed or one step fewer of the flow's solver, by 4e-3 and more.
"""
BLOCK = 1_000
"""Samples of a block."""
DIGITS = 6
SEED = 5
CLAUSES = ("Where did she put the 3.14 of it? ", "No idea. ", "It is late; go on.")
WORDS = "Hello world. How are you, and what do you do when the evening comes?"
INSTRUCTION = "You are a helpful assistant.<|endofprompt|>"
"""Words that CosyVoice3 expects before a text or before the text of a reference."""
PREFIX = {"cosyvoice3": INSTRUCTION}
MOST_TOKENS = {"cosyvoice2": 80, "cosyvoice3": 80, "cosyvoice300m": 120}
"""Speech tokens of an utterance. With 4 s of speech and less, time does not decide where chunks end."""
CLAUSE_TOKENS = MOST_TOKENS | {"cosyvoice300m": 40}
"""Speech tokens of a segment: CosyVoice-300M makes one of each clause, the others speak clauses as one."""
CONTROL_IDS = {"cosyvoice2": (7584, 7585), "cosyvoice3": (8042, 8043), "cosyvoice300m": (6706, 6707)}
"""Ids of `tensorrt_llm` that begin a prompt and that end its text, with the tiny checkpoints."""
TEXT_IDS = range(5, 12)

Recording = dict[str, Any]


def fingerprint(chunks: Sequence[AudioChunk], text_is_late: bool = False) -> Recording:
    """What is kept of an answer; of late text not how much had come when speech reached its limit."""
    samples = np.concatenate([chunk.samples for chunk in chunks]).astype(np.float64)
    blocks = np.pad(samples, (0, -len(samples) % BLOCK)).reshape(-1, BLOCK)
    characters = [chunk.spoken_characters for chunk in chunks]
    return {
        "chunk_samples": [len(chunk.samples) for chunk in chunks],
        "finish_reasons": [chunk.finish_reason for chunk in chunks],
        "spoken_characters": None if text_is_late else characters,
        "rms": np.sqrt((blocks**2).mean(axis=1)).round(DIGITS).tolist(),
        "mean": blocks.mean(axis=1).round(DIGITS).tolist(),
    }


def differences(found: Recording, kept: Recording) -> list[str]:
    """What tells two recordings of a name apart, in words."""
    told = []
    for name in kept.keys() | found.keys():
        now, then = found.get(name), kept.get(name)
        if name in ("rms", "mean") and now and then and len(now) == len(then):
            apart = np.abs(np.subtract(now, then))
            if apart.max() > TOLERANCE:
                told.append(f"{name} of block {apart.argmax()} differs by {apart.max():.6f}")
        elif now != then:
            told.append(f"{name}: {now}, expected {then}")
    return told


def requests(family: str) -> dict[str, SpeechRequest]:
    """A request in each of two voices: a speaker of the checkpoint and a recording."""
    prefix = PREFIX.get(family, "")
    options = {"seed": SEED, "max_tokens": MOST_TOKENS[family]}
    own = Reference(recording(150), text=f"{prefix}a short reference")
    return {
        "speaker": SpeechRequest(prefix + WORDS, voice="default", **options),
        "reference": SpeechRequest(WORDS, own, **options),
    }


def in_pieces(family: str) -> dict[str, SpeechRequest]:
    """The same for a text that comes later, clause by clause."""
    instruct = INSTRUCTION.removesuffix("<|endofprompt|>") if family == "cosyvoice3" else None
    options = {"seed": SEED, "max_tokens": CLAUSE_TOKENS[family], "instruct_text": instruct}
    own = Reference(recording(150), text=f"{PREFIX.get(family, '')}a short reference")
    return {
        "speaker": SpeechRequest("", voice="default", **options),
        "reference": SpeechRequest("", own, **options),
    }


async def spoken_in_pieces(server: Server, request: SpeechRequest) -> list[AudioChunk]:
    async with (
        AsyncSpeechClient(server.grpc_url, timeout_s=TIMEOUT_S) as client,
        client.speak_text(request) as speech,
    ):
        for clause in CLAUSES:
            await speech.push(clause)
        await speech.end()
        return [chunk async for chunk in speech]


def speech_tokens(server: Server, family: str) -> Recording:
    """Tokens that the speech LM draws with two seeds, and those of the recording."""
    sos, end_of_text = CONTROL_IDS[family]
    inputs = {"request_output_len": MOST_TOKENS[family], "sampling_strategy": "ras", "streaming": True}
    found: Recording = {}
    for seed in (SEED, SEED + 1):
        stream = TokenStream(server, [sos, *TEXT_IDS, end_of_text], seed=seed, **inputs)
        found[f"drawn with seed {seed}"] = stream.read().ids
        stream.close()
    with Client(server) as extractors:
        inputs = {"reference_wav": recording(150)[None]}
        tokens = extractors.call("audio_tokenizer", inputs, "prompt_speech_tokens")
    return {**found, "of the recording": tokens.tolist()}


def record(server: Server, family: str) -> dict[str, Recording]:
    """Everything that is kept of a family."""
    found = {"speech tokens": speech_tokens(server, family)}
    http = HttpSpeechClient(server.http_url, timeout_s=TIMEOUT_S)
    for voice, request in requests(family).items():
        found[f"{voice}, streamed"] = fingerprint(list(client(server).speak(request)))
        found[f"{voice}, whole"] = fingerprint([http.synthesize(request)])
    for voice, request in in_pieces(family).items():
        chunks = asyncio.run(asyncio.wait_for(spoken_in_pieces(server, request), TIMEOUT_S))
        found[f"{voice}, in pieces"] = fingerprint(chunks, text_is_late=family != "cosyvoice300m")
    return found


def write(family: str, found: dict[str, Recording]) -> None:
    """Put a family's recordings into the file; a list takes one line."""
    kept = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    text = json.dumps(kept | {family: found}, indent=1, sort_keys=True)
    GOLDEN.write_text(re.sub(r"\[[^]]*\]", lambda found: re.sub(r"\s+", " ", found[0]), text) + "\n")


@pytest.mark.parametrize("family", MOST_TOKENS)
def test_speech_is_that_of_the_recordings(serve_all, tmp_path, pytestconfig, family):
    checkpoint = make_checkpoint(tmp_path / "tiny", "tiny", seed=0, family=family)
    settings = {
        "checkpoint_dir": checkpoint,
        "tensorrt_llm.engine": "auto",
        "tensorrt_llm.engine_dir": tmp_path / "speech_lm",
        "token2wav.backend": "auto",
        "token2wav.backend_dir": tmp_path / "networks",
        "token2wav.ode_steps": 10,
    }
    given = [f"{key}={value}" for key, value in settings.items()]
    subprocess.run([sys.executable, ROOT / "scripts" / "build_engines.py", *given], check=True)
    times = {"cosyvoice2.silence_timeout_s": 600, "cosyvoice2.voices_dir": tmp_path / "voices"}
    with serve_all(**settings, **times) as server:
        found = record(server, family)
    if pytestconfig.getoption("--write"):
        write(family, found)
    kept = json.loads(GOLDEN.read_text())[family]
    assert found.keys() == kept.keys()
    told = [f"{name}: {words}" for name in kept for words in differences(found[name], kept[name])]
    assert not told, "\n".join(told)


def test_what_differs_is_told():
    kept = {"chunk_samples": [3, 1], "rms": [0.1, 0.2], "mean": [0.0, 0.0]}
    assert differences({**kept, "rms": [0.1, 0.2 + TOLERANCE / 2]}, kept) == []
    assert differences({**kept, "rms": [0.1, 0.2 + 2 * TOLERANCE]}, kept) == [
        "rms of block 1 differs by 0.001000"
    ]
    assert differences({**kept, "mean": [0.0]}, kept) == ["mean: [0.0], expected [0.0, 0.0]"]
    assert differences({**kept, "chunk_samples": [4]}, kept) == ["chunk_samples: [4], expected [3, 1]"]
