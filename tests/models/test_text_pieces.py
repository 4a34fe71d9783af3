"""Text that comes in pieces, through the whole chain on a real server, against the library."""

from __future__ import annotations

import asyncio
import dataclasses
import queue
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton
from conftest import ALL_MODELS
from speaking import FEW_STEPS, TEXT, TIMEOUT_S, assert_same_audio, recording, reference
from supervised import Supervised

from cosyvoice_client import AsyncSpeechClient, RefusedError, SpeechRequest, UnavailableError
from cosyvoice_client.request import infer_inputs, message_tensors
from cosyvoice_runtime.audio.audio import reference_audio
from cosyvoice_runtime.engine.utterance.incoming_text import TextMark
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.local import SpeechRequest as LibraryRequest
from cosyvoice_runtime.local import Synthesizer
from served_library import served_library

BATCHED_OTHERWISE = 3e-3
"""Of full scale: chunks of several utterances are computed together, which rounds otherwise."""

CLAUSES = ["Where did she put the 3.14 of it? ", "No idea. ", "It is late; go on."]
WHOLE = "".join(CLAUSES)
IDLE_S = 15.0
SEED = 5
MOST_TOKENS = 160
"""Of a segment: the tiny checkpoint's speech LM seldom ends by itself."""
SPEECH = SpeechRequest("", seed=SEED, max_tokens=MOST_TOKENS)
FLUSH = TextMark.FLUSH
SAMPLING = SamplingOptions(max_tokens=MOST_TOKENS, top_p=float(np.float32(0.8)), tau=float(np.float32(0.1)))
"""Of the server by default; its tensors have single precision."""


@pytest.fixture(scope="module")
def server(render_models, tmp_path_factory) -> Iterator[Supervised]:
    texts = {
        "cosyvoice2.voices_dir": tmp_path_factory.mktemp("voices"),
        "cosyvoice2.text_timeout_s": IDLE_S,
        "cosyvoice2.silence_timeout_s": 600,
        "cosyvoice2.max_inflight_utterances": 8,
        "token2wav.max_flow_pages": 64,
    }
    with Supervised(render_models(ALL_MODELS, **texts)) as server:
        yield server


@pytest.fixture(scope="module")
def synthesizer(tiny_checkpoint: Path) -> Synthesizer:
    return served_library(tiny_checkpoint, ode_steps=FEW_STEPS)


def run(work):
    return asyncio.run(asyncio.wait_for(work, TIMEOUT_S))


async def say(speech, pieces) -> None:
    for piece in pieces:
        await (speech.flush() if piece is FLUSH else speech.push(piece))
    await speech.end()


async def heard(server: Supervised, pieces, request: SpeechRequest) -> list:
    """All chunks of a text in pieces, each sent when the one before it has been taken."""
    async with (
        AsyncSpeechClient(server.grpc_url, timeout_s=TIMEOUT_S) as client,
        client.speak_text(request) as speech,
    ):
        saying = asyncio.create_task(say(speech, pieces))
        chunks = [chunk async for chunk in speech]
        await saying
        return chunks


def samples(chunks) -> np.ndarray:
    return np.concatenate([chunk.samples for chunk in chunks])


def idle(server: Supervised, metric) -> bool:
    gauges = ("cosyvoice_inflight_utterances", "cosyvoice_lm_active_slots", "cosyvoice_token2wav_utterances")
    return not any(metric(server, gauge) for gauge in gauges)


@pytest.mark.parametrize("pieces", [CLAUSES, list(WHOLE), [CLAUSES[0], FLUSH, *CLAUSES[1:]]], ids=len)
@pytest.mark.parametrize("cloned", [False, True])
def test_audio_is_that_of_the_library_for_the_same_clauses(server, synthesizer, pieces, cloned):
    if cloned:
        audio = reference_audio(recording(150), 16_000, None)
        voice = synthesizer.voice(audio, "a short reference")
    else:
        voice = next(iter(synthesizer.speakers.values()))
    request = LibraryRequest("", voice, seed=SEED, sampling=SAMPLING)
    expected = list(synthesizer.synthesize_pieces(pieces, request))
    asked = dataclasses.replace(SPEECH, reference=reference() if cloned else None)
    chunks = run(heard(server, pieces, asked))
    assert_same_audio(
        samples(chunks), np.concatenate([chunk.samples for chunk in expected]), BATCHED_OTHERWISE
    )
    ends = [(chunk.finish_reason, chunk.spoken_characters) for chunk in chunks if chunk.finish_reason]
    assert ends == [
        (chunk.finish_reason.value, chunk.spoken_characters) for chunk in expected if chunk.finish_reason
    ]
    assert ends[-1][1] == len(WHOLE)


def test_first_audio_comes_before_the_last_clause_is_sent(server):
    async def work():
        async with (
            AsyncSpeechClient(server.grpc_url, timeout_s=TIMEOUT_S) as client,
            client.speak_text(SPEECH) as speech,
        ):
            await speech.push(CLAUSES[0] + "S")
            first = await anext(aiter(speech))
            await say(speech, [CLAUSES[1][1:], CLAUSES[2]])
            return first, [chunk async for chunk in speech]

    first, rest = run(work())
    assert len(first.samples)
    assert not first.finish_reason
    assert rest[-1].spoken_characters == len(WHOLE)


def test_deltas_of_many_utterances_stay_in_order(server):
    async def work():
        words = [f"word{number} " for number in range(25)]
        return await asyncio.gather(*(heard(server, words, SPEECH) for _ in range(6)))

    first, *others = (samples(chunks) for chunks in run(work()))
    for other in others:
        assert_same_audio(other, first, BATCHED_OTHERWISE)


def in_one_stream(server: Supervised, words: list[str]) -> np.ndarray:
    """What is heard when all messages go through one stream, none of which waits for an answer."""
    answers: queue.Queue = queue.Queue()
    name, heard = "all-in-one-stream-of-mine", []
    events = [("open", ""), *(("push", word) for word in words), ("end", "")]
    with triton.InferenceServerClient(server.grpc_url) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for event, text in events:
            inputs = infer_inputs(
                triton, message_tensors(dataclasses.replace(SPEECH, text=text), name, event)
            )
            client.async_stream_infer(
                "cosyvoice2", inputs, request_id=event, enable_empty_final_response=event == "open"
            )
        ended = False
        while not ended:
            result, error = answers.get(timeout=TIMEOUT_S)
            assert error is None, error
            waveform = result.as_numpy("waveform")
            heard += [] if waveform is None else [waveform[0]]
            ended = result.get_response().parameters["triton_final_response"].bool_param
        client.stop_stream()
    return np.concatenate(heard)


def test_messages_of_one_stream_are_applied_in_order(server):
    words = [f"word{number} " for number in range(25)]
    expected = samples(run(heard(server, words, SPEECH)))
    for _ in range(3):
        assert_same_audio(in_one_stream(server, words), expected, BATCHED_OTHERWISE)


@pytest.mark.parametrize("way", ["cancel", "leave", "error"])
def test_utterance_that_is_left_frees_place_slot_and_pages(server, metric, eventually, way):
    async def work():
        async with (
            AsyncSpeechClient(server.grpc_url, timeout_s=TIMEOUT_S) as client,
            client.speak_text(SPEECH) as speech,
        ):
            await speech.push(WHOLE * 3)
            await anext(aiter(speech))
            if way == "cancel":
                await speech.cancel()
                return [chunk async for chunk in speech]
            if way == "error":
                raise KeyError(way)
            return []

    with suppress(KeyError):
        run(work())
    eventually(lambda: idle(server, metric))


def test_text_that_stays_away_ends_the_utterance_and_frees_all(server, metric, eventually):
    async def work():
        async with (
            AsyncSpeechClient(server.grpc_url, timeout_s=TIMEOUT_S) as client,
            client.speak_text(SPEECH) as speech,
        ):
            await speech.push(CLAUSES[0] + "S")
            return [chunk async for chunk in speech]

    with pytest.raises(RefusedError, match="no text came for 15 s, and no end of it") as caught:
        run(work())
    assert caught.value.kind == "cancelled"
    eventually(lambda: idle(server, metric))


def refusal(server: Supervised, name: str, event: str, client_id: str | None = None) -> str:
    """What a message is answered with."""
    answers: queue.Queue = queue.Queue()
    with triton.InferenceServerClient(server.grpc_url) as client:
        headers = {"x-client-id": client_id} if client_id else None
        client.start_stream(lambda result, error: answers.put((result, error)), headers=headers)
        inputs = infer_inputs(triton, message_tensors(SpeechRequest("x"), name, event))
        client.async_stream_infer("cosyvoice2", inputs, enable_empty_final_response=True)
        _, error = answers.get(timeout=TIMEOUT_S)
        client.stop_stream()
    return "" if error is None else error.message()


@pytest.mark.parametrize(
    ("name", "event", "message"),
    [
        (
            "nobody-opened-this-one",
            "push",
            "NOT_FOUND: utterance_id: 'nobody-opened-this-one' is unknown",
        ),
        ("short", "open", "INVALID_ARGUMENT: utterance_id: 'short' is not accepted; 16 to 128 characters of"),
        (
            "0123456789abcdef",
            "shout",
            "INVALID_ARGUMENT: text_event: 'shout' is not accepted; with",
        ),
    ],
)
def test_message_that_names_nothing_or_says_nothing_is_refused(server, name, event, message):
    assert refusal(server, name, event).startswith(message)


def test_foreign_client_adds_nothing_even_if_it_knows_the_name(server):
    async def work():
        async with (
            AsyncSpeechClient(server.grpc_url, timeout_s=TIMEOUT_S, name="owner") as client,
            client.speak_text(SPEECH) as speech,
        ):
            said = await asyncio.to_thread(refusal, server, speech.name, "push", "somebody else")
            await say(speech, [TEXT])
            return said, [chunk async for chunk in speech]

    said, chunks = run(work())
    assert said.startswith("NOT_FOUND: utterance_id: ")
    assert chunks[-1].spoken_characters == len(TEXT)


def test_ordinary_request_says_with_its_last_segment_how_much_is_spoken(server):
    async def work():
        async with AsyncSpeechClient(server.grpc_url, timeout_s=TIMEOUT_S) as client:
            return [chunk async for chunk in client.speak(dataclasses.replace(SPEECH, text=TEXT))]

    chunks = run(work())
    assert [chunk.spoken_characters for chunk in chunks] == [None] * (len(chunks) - 1) + [len(TEXT)]


def test_engine_that_dies_while_text_is_open_is_told_at_once(server, metric, eventually):
    async def work():
        async with (
            AsyncSpeechClient(server.grpc_url, timeout_s=TIMEOUT_S) as client,
            client.speak_text(SPEECH) as speech,
        ):
            await speech.push(CLAUSES[0] + "S")
            await anext(aiter(speech))
            await asyncio.sleep(1)  # until nothing is asked of any stage: the utterance waits for text
            server.signal("token2wav")
            killed_s = time.monotonic()
            try:
                async for _ in speech:
                    pass
            finally:
                waits.append(time.monotonic() - killed_s)

    waits: list[float] = []
    repairs = server.said(" is back after ")
    with pytest.raises(UnavailableError, match="token2wav is being started again; try again later"):
        run(work())
    assert waits[0] < IDLE_S
    server.wait_for(lambda: server.said(" is back after ") > repairs)
    eventually(lambda: idle(server, metric))
