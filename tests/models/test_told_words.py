"""When each word is heard, as a real server tells it: the demo voice, whose speech LM is on ONNX Runtime."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from speaking import TIMEOUT_S, client
from token_stream import TokenStream

from cosyvoice_client import AsyncSpeechClient, AudioChunk, RefusedError, SpeechRequest
from cosyvoice_client.http_client import HttpSpeechClient
from cosyvoice_client.words import TimedWord
from cosyvoice_runtime.alignment.sound import PAUSE_S
from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.merged_vocabulary import MergedVocabulary
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.lm.onnx.export import export_lm
from cosyvoice_runtime.local import SpeechRequest as LibraryRequest
from cosyvoice_runtime.supervisor import Server
from served_library import served_library

DEMO_VOICE = Path(__file__).parents[2] / "demo_voice"
STEPS = 4
TEXT = "Pay $25 to Anna now. <break time='300ms'/>The train leaves at 7:45 on Monday."
WORDS = ["Pay", "$25", "to", "Anna", "now.", "The", "train", "leaves", "at", "7:45", "on", "Monday."]
ASKED = SpeechRequest(TEXT, voice="slt", seed=4, words=True)
TURNS = [{"voice": "slt", "text": "Is it late?"}, {"voice": "rms", "text": "Yes, at 7:45."}]
NEAR_S = PAUSE_S + 0.01
"""Chunks end elsewhere, and whether a word ends with a pause is judged by the sound so far."""


@pytest.fixture(scope="module")
def server(serve_all, tmp_path_factory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("onnx") / "speech_lm"
    export_lm(DEMO_VOICE, directory, "float32")
    texts = {
        "checkpoint_dir": DEMO_VOICE,
        "token2wav.ode_steps": STEPS,
        "tensorrt_llm.engine": "onnx",
        "tensorrt_llm.engine_dir": directory,
        "tensorrt_llm.weight_format": "float32",
        "cosyvoice2.silence_timeout_s": 600,
        "cosyvoice2.verifier": "tests.fakes.hearing:Hearing",
        "cosyvoice2.voices_dir": tmp_path_factory.mktemp("voices"),
    }
    with serve_all(**texts) as server:
        yield server


def words(chunks: Sequence[AudioChunk]) -> list[TimedWord]:
    return [word for chunk in chunks for word in chunk.words]


def check(chunks: Sequence[AudioChunk], sent: Sequence[str]) -> None:
    """Words are echoed in order, never go back, and lie in what has been heard by then."""
    heard_s = last_s = 0.0
    for chunk in chunks:
        heard_s += chunk.seconds
        for word in chunk.words:
            assert last_s <= word.start_s <= word.end_s <= heard_s + 0.02
            last_s = word.end_s
    assert [word.text for word in words(chunks)] == list(sent)


def assert_near(found: Sequence[TimedWord], wanted: Sequence[TimedWord]) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one[1:], other[1:], atol=NEAR_S)


@pytest.fixture(scope="module")
def streamed(server) -> list[AudioChunk]:
    return list(client(server).speak(ASKED))


def test_stream_tells_words_by_attention_as_the_library_does(streamed):
    check(streamed, WORDS)
    assert {chunk.words_by for chunk in streamed} == {"attention"}
    library = served_library(DEMO_VOICE, ode_steps=STEPS)
    sampling = SamplingOptions(top_p=float(np.float32(0.8)), tau=float(np.float32(0.1)))
    request = LibraryRequest(TEXT, library.speakers["slt"], seed=ASKED.seed, sampling=sampling)
    assert_near(words(streamed), words(list(library.synthesize(request, words=True))))


def test_whole_answer_tells_the_same_words(server, streamed):
    answer = HttpSpeechClient(server.http_url).synthesize(ASKED)
    check([answer], WORDS)
    assert answer.words_by == "attention"
    assert_near(answer.words, words(streamed))


def test_words_change_no_sample_and_come_to_nobody_else(server, streamed):
    plain = list(client(server).speak(dataclasses.replace(ASKED, words=None)))
    assert {chunk.words_by for chunk in plain} == {""}
    found, wanted = (np.concatenate([chunk.samples for chunk in chunks]) for chunks in (plain, streamed))
    np.testing.assert_allclose(found, wanted, atol=1e-3, rtol=0)


def test_turns_and_trimmed_speech_have_words(server):
    request = SpeechRequest(turns=TURNS, seed=4, words=True, trim_silence="both")
    chunks = list(client(server).speak(request))
    check(chunks, ["Is", "it", "late?", "Yes,", "at", "7:45."])
    assert {chunk.words_by for chunk in chunks} == {"attention"}


def test_text_in_pieces_has_words_by_attention_where_each_clause_is_a_segment(server):
    async def work() -> list[AudioChunk]:
        request = dataclasses.replace(ASKED, text="", verify="report")
        async with (
            AsyncSpeechClient(server.grpc_url, timeout_s=TIMEOUT_S) as speaker,
            speaker.speak_text(request) as speech,
        ):
            for piece in ("Pay $2", "5 to Anna now. The tr", "ain leaves at 7:45 on Monday."):
                await speech.push(piece)
            await speech.end()
            return [chunk async for chunk in speech]

    chunks = asyncio.run(work())
    check(chunks, WORDS)
    assert {chunk.words_by for chunk in chunks if chunk.words} == {"attention"}
    right = {"checked": True, "redraws": 0, "findings": []}
    assert [chunk.verification for chunk in chunks if chunk.finish_reason] == [right] * 2


def test_speech_goes_on_with_words_where_another_server_has_begun(server, streamed):
    """What has been spoken of a segment is an estimate there, and later segments are not."""
    told = list(client(server).speak(dataclasses.replace(ASKED, spoken_tokens=())))
    tokens = [token for chunk in told for token in chunk.spoken_tokens]
    again = list(client(server).speak(dataclasses.replace(ASKED, spoken_tokens=tokens[:20])))
    check(again, WORDS)
    ends = [chunk.words_by for chunk in again if chunk.finish_reason]
    assert ends == ["estimate", "attention"]
    samples = [sum(len(chunk.samples) for chunk in chunks) for chunks in (told, again)]
    assert samples[0] == samples[1]
    assert_near(words(told), words(streamed))


def test_speech_lm_tells_what_each_token_looks_at(server):
    vocabulary = MergedVocabulary.of(Layout(DEMO_VOICE), load_config(DEMO_VOICE).speech_lm)
    ids = [vocabulary.sos_id, *range(300, 312), vocabulary.task_id]
    inputs = {"request_output_len": 30, "min_tokens": 20, "sampling_strategy": "ras", "streaming": True}
    for asked in (True, None):
        stream = TokenStream(server, ids, seed=1, **inputs, tell_attention=asked)
        answer = stream.read()
        stream.close()
        assert len(answer.rows) == (len(answer.ids) if asked else 0)
        assert all(row.shape == (12,) for row in answer.rows)
        np.testing.assert_allclose([row.sum() for row in answer.rows], 1, atol=1e-4)


@pytest.mark.parametrize("verify", ["report", "retry"])
def test_words_are_compared_with_the_text_in_streams_and_whole_answers(server, verify):
    request = dataclasses.replace(
        ASKED, text="Nobody in the village remembered such a cold winter.", verify=verify
    )
    right = {"checked": True, "redraws": 0, "findings": []}
    assert HttpSpeechClient(server.http_url).synthesize(request).verification == right
    *_, last = client(server).speak(request)
    assert (last.verification, last.finish_reason) == (right, "stop")
    turns = client(server).speak(dataclasses.replace(request, text="", voice=None, turns=TURNS))
    assert [chunk.verification for chunk in turns if chunk.finish_reason] == [right] * len(TURNS)


def test_verifier_of_the_server_judges_whole_answers_that_are_verified(server):
    request = dataclasses.replace(ASKED, text="Never mumble.", verify="retry")
    speak = HttpSpeechClient(server.http_url).synthesize
    found = {"kind": "heard", "text": "mumbled", "start": 0, "end": len(request.text)}
    assert speak(request).verification == {"checked": True, "redraws": 2, "findings": [found]}
    assert speak(dataclasses.replace(request, verify="off")).verification is None
    *_, last = client(server).speak(request)
    assert last.verification["findings"] == []
    with pytest.raises(RefusedError, match="AssertionError"):
        speak(dataclasses.replace(request, text="Then it may explode."))
    assert speak(dataclasses.replace(request, text="All is well again.")).verification["findings"] == []
