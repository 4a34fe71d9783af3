"""Utterances that the engine speaks to a caller on its socket: chunks, ends, and callers that leave."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coded_networks import SPEECH, TOKEN_SAMPLES, Lm, Waves

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.engine import host_client, speech_engine
from cosyvoice_runtime.engine.messages import Order
from cosyvoice_runtime.engine.speech_engine import SpeechEngine
from cosyvoice_runtime.engine.utterance.hop import HopPolicy
from cosyvoice_runtime.engine.utterance.request import AudioChunk, Utterance
from cosyvoice_runtime.engine.utterance.verdict import Verification
from cosyvoice_runtime.engine.utterance.verification import MOST_REDRAWS, Checks
from cosyvoice_runtime.engine.utterance.verifier import Judge
from cosyvoice_runtime.errors import (
    CosyVoiceError,
    InvalidInput,
    OverloadedError,
    StageError,
    StageLostError,
    StageSilentError,
    status_of,
)
from cosyvoice_runtime.lm import FinishReason, Prompt, SamplingOptions
from cosyvoice_runtime.lm.text_segment import CheckedText, Sound
from cosyvoice_runtime.metrics import trace
from cosyvoice_runtime.serving.hosted.model_host import ModelHost
from cosyvoice_runtime.serving.speech.engine_client import EngineCall, EngineClient
from cosyvoice_runtime.voice.voice import Voice
from eventually import eventually

PATIENCE_S = 30.0
RATE = 24_000
HOP = HopPolicy(25, 3, 10, 25, 100, 25)
VOICE = Voice(
    "0" * 64, "x", np.arange(15, dtype=np.int32), np.ones((30, 80), np.float32), np.ones(192, np.float32), "c"
)
VOICES = {VOICE.prompt_key: VOICE}


@pytest.fixture
def lm() -> Lm:
    return Lm()


@pytest.fixture
def waves() -> Waves:
    return Waves()


@pytest.fixture
def path(tmp_path: Path, lm: Lm, waves: Waves) -> Iterator[Path]:
    host = ModelHost(tmp_path / "networks", {}, SpeechEngine(lm, waves))
    yield tmp_path / "networks"
    host.close()


def order(
    timeout_s: float = PATIENCE_S,
    **options: Any,
) -> Order:
    how = {"seed": 7, "sampling": SamplingOptions(top_k=7), "streaming": True} | options
    utterance = Utterance(Sound(VOICE.prompt_key, 15), **how)
    times = {"timeout_s": timeout_s, "text_timeout_s": timeout_s}
    return Order(utterance, HOP, RATE, **times)


def run(path: Path, use: Callable[[EngineClient], Awaitable[Any]], timeout_s: float = PATIENCE_S) -> Any:
    async def inner() -> Any:
        engine = EngineClient(path, timeout_s)
        try:
            return await asyncio.wait_for(use(engine), PATIENCE_S)
        finally:
            await engine.close()

    return asyncio.run(inner())


def called(engine: EngineClient, prompts: Sequence[Prompt] = (Prompt([5]),), **options: Any) -> EngineCall:
    call = engine.call(order(**options), VOICES)
    for prompt in prompts:
        call.begin(prompt)
    call.done()
    return call


async def heard(call: EngineCall) -> list[AudioChunk]:
    return [chunk async for chunk in call.chunks()]


def tokens(chunks: Sequence[AudioChunk]) -> list[int]:
    samples = np.concatenate([chunk.samples for chunk in chunks])
    return samples[::TOKEN_SAMPLES].astype(int).tolist()


def test_every_token_of_every_segment_is_heard_once_in_order(path, lm):
    prompts = [Prompt([5, 6], [7], [8, 9], [1], [0.5, 0.25]), Prompt([10])]
    chunks = run(path, lambda engine: heard(called(engine, prompts)))
    assert tokens(chunks) == [*SPEECH, *SPEECH]
    assert [(chunk.segment, chunk.finish_reason) for chunk in chunks if chunk.finish_reason] == [
        (0, FinishReason.STOP),
        (1, FinishReason.STOP),
    ]
    parts = [prompt.segments() for prompt, _ in lm.prompts]
    assert str(parts) == str([Prompt(*map(list, astuple(prompt))).segments() for prompt in prompts])
    assert {sampling.top_k for _, sampling in lm.prompts} == {7}
    assert len({sampling.seed for _, sampling in lm.prompts}) == 2


def judged(judge: Judge) -> Order:
    checks = Checks(None, 0.04, MOST_REDRAWS, judge=judge)
    return dataclasses.replace(order(streaming=False), checks=checks)


def spoken(engine: EngineClient, order: Order) -> Coroutine[Any, Any, list[AudioChunk]]:
    call = engine.call(order, VOICES)
    call.begin(Prompt([5]), checked=CheckedText("said", 1.0, [(0, 4)], [], 0))
    call.done()
    return heard(call)


def test_caller_judges_each_attempt_at_a_segment_while_others_are_spoken(path, lm):
    asked: list[tuple[list[int], int, str]] = []

    async def use(engine: EngineClient) -> list[AudioChunk]:
        async def judge(samples: Floats, rate: int, text: str) -> bool | list[str]:
            assert tokens(await heard(called(engine))) == [*SPEECH]
            asked.append((samples[::TOKEN_SAMPLES].astype(int).tolist(), rate, text))
            return len(asked) > 1 or ["mumbled"]

        return await spoken(engine, judged(judge))

    chunks = run(path, use)
    assert asked == [([*SPEECH], RATE, "said")] * 2
    assert tokens(chunks) == [*SPEECH]
    assert chunks[-1].verification == Verification([], 1)


def test_error_of_the_verifier_is_the_callers_and_ends_the_utterance(path, waves):
    async def judge(*_segment: object) -> bool:
        raise ValueError("no model")

    with pytest.raises(ValueError, match="no model"):
        run(path, lambda engine: spoken(engine, judged(judge)))
    assert tokens(run(path, lambda engine: heard(called(engine)))) == [*SPEECH]


def test_silences_are_heard_in_their_places_and_no_network_computes_them(path, waves):
    async def use(engine: EngineClient) -> list[AudioChunk]:
        call = engine.call(order(), VOICES)
        call.pause(0.25)
        call.begin(Prompt([5]))
        call.pause(0.5)
        call.pause(0.125)
        call.begin(Prompt([6]))
        call.pause(1.0)
        call.done()
        return await heard(call)

    chunks = run(path, use)
    pauses = [(chunk.segment, chunk.seconds) for chunk in chunks if chunk.is_pause]
    assert pauses == [(0, 0.25), (1, 0.5), (1, 0.125), (2, 1.0)]
    assert not any(chunk.samples.any() for chunk in chunks if chunk.is_pause)
    assert (chunks[0].is_pause, chunks[-1].is_pause) == (True, True)
    assert tokens([chunk for chunk in chunks if not chunk.is_pause]) == [*SPEECH, *SPEECH]


def test_silence_is_left_out_and_its_seconds_are_told(path):
    """Samples of the networks here are constant for each token, so that no window is heard."""
    chunks = run(path, lambda engine: heard(called(engine, trim_silence="start")))
    assert sum(len(chunk.samples) for chunk in chunks) == RATE // 10
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == [FinishReason.STOP]
    told = np.sum([chunk.trimmed_s for chunk in chunks], axis=0)
    assert told == pytest.approx([len(SPEECH) * TOKEN_SAMPLES / RATE - 0.1, 0])


def test_silence_that_is_left_out_leaves_nothing_to_play(path, waves):
    """A chunk is as urgent as if none had been made, until the listener has got one."""
    left = []
    for trim in ("off", "start"):
        run(path, lambda engine, trim=trim: heard(called(engine, trim_silence=trim)))
        left.append([chunk.cushion_s for chunk in waves.chunks])
        waves.chunks.clear()
    assert max(left[0]) > 0
    assert max(left[1]) == 0


def test_a_segment_has_a_voice_and_a_pace_of_its_own(path, waves):
    other = dataclasses.replace(VOICE, key="1" * 64)
    sound = Sound(other.prompt_key, 15, 1.5)

    async def use(engine: EngineClient) -> list[AudioChunk]:
        call = engine.call(order(), {**VOICES, other.prompt_key: other})
        for spoken in (None, sound, None, sound._replace(speed=0.5)):
            call.begin(Prompt([5]), sound=spoken)
        call.done()
        return await heard(call)

    assert tokens(run(path, use)) == [*SPEECH] * 4
    opened = [chunk for chunk in waves.chunks if chunk.position == 0 and chunk.voice_key]
    sounds = dict.fromkeys((chunk.voice_key, chunk.speed) for chunk in opened)
    assert [*sounds] == [
        (VOICE.prompt_key, 1.0), (other.prompt_key, 1.5), (other.prompt_key, 0.5)
    ]  # fmt: skip
    assert {*waves.voices} == {VOICE.prompt_key, other.prompt_key}


def test_a_voice_is_asked_for_once_while_the_one_before_it_speaks(path, waves):
    other = dataclasses.replace(VOICE, key="1" * 64, speaker_embedding=np.zeros(192, np.float32))
    sounds = [Sound(voice.prompt_key, 15) for voice in (VOICE, other, VOICE, other)]

    async def use(engine: EngineClient) -> list[AudioChunk]:
        call = engine.call(order(), {**VOICES, other.prompt_key: other})
        for sound in sounds:
            call.begin(Prompt([5]), sound=sound)
        call.done()
        return await heard(call)

    waves.later_s = 0.05
    assert tokens(run(path, use)) == [*SPEECH] * 4
    names = [chunk.utterance_id for chunk in waves.chunks]
    spoken = list(dict.fromkeys(chunk.utterance_id for chunk in waves.chunks if chunk.tokens))
    sent = [chunk for chunk in waves.chunks if chunk.prompt is not None and chunk.position == 0]
    assert [chunk.voice_key for chunk in sent if not chunk.tokens] == [other.prompt_key]
    last_of_first = len(names) - 1 - names[::-1].index(spoken[0])
    assert waves.chunks.index(next(chunk for chunk in sent if not chunk.tokens)) < last_of_first
    assert waves.forgotten == []


def test_a_voice_that_can_not_be_made_ready_is_sent_where_it_speaks(path, waves, monkeypatch):
    other = dataclasses.replace(VOICE, key="1" * 64, speaker_embedding=np.zeros(192, np.float32))
    outcome = waves._outcome
    full = OverloadedError("no room to make it ready")
    monkeypatch.setattr(waves, "_outcome", lambda chunk: outcome(chunk) if chunk.tokens else full)

    async def use(engine: EngineClient) -> list[AudioChunk]:
        call = engine.call(order(), {**VOICES, other.prompt_key: other})
        call.begin(Prompt([5]))
        call.begin(Prompt([5]), sound=Sound(other.prompt_key, 15))
        call.done()
        return await heard(call)

    assert tokens(run(path, use)) == [*SPEECH] * 2
    assert {*waves.voices} == {VOICE.prompt_key, other.prompt_key}
    assert any(not chunk.tokens for chunk in waves.chunks)


def test_a_caller_that_leaves_while_a_voice_is_made_ready_leaves_nothing(path, waves, monkeypatch):
    other = dataclasses.replace(VOICE, key="1" * 64, speaker_embedding=np.zeros(192, np.float32))
    submit = waves.submit
    held: list[str] = []

    def hold_voices(chunk, deliver) -> None:
        if chunk.cancel or chunk.tokens:
            submit(chunk, deliver)
        else:
            held.append(chunk.utterance_id)

    monkeypatch.setattr(waves, "submit", hold_voices)

    async def use(engine: EngineClient) -> None:
        call = engine.call(order(), {**VOICES, other.prompt_key: other})
        call.begin(Prompt([5]))
        call.begin(Prompt([5]), sound=Sound(other.prompt_key, 15))
        async with aclosing(call.chunks()) as chunks:
            async for _ in chunks:
                if held:
                    break

    run(path, use)
    eventually(lambda: held[0] in waves.forgotten)


def test_same_seed_draws_the_same_and_another_one_others(path, lm, waves):
    for seed in (1, 1, 2):
        run(path, lambda engine, seed=seed: heard(called(engine, seed=seed)))
    drawn = [sampling.seed for _, sampling in lm.prompts]
    noise = [chunk.noise_seed for chunk in waves.chunks if chunk.position == 0 and chunk.voice_key]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(noise)) == 2


def test_many_utterances_at_a_time_hear_their_own(path, lm, waves):
    async def use(engine: EngineClient) -> list[list[AudioChunk]]:
        return await asyncio.gather(*(heard(called(engine, [Prompt([5])] * n)) for n in range(1, 9)))

    assert [tokens(chunks) for chunks in run(path, use)] == [[*SPEECH] * n for n in range(1, 9)]
    assert waves.forgotten == []


def test_voice_is_sent_once_and_only_where_it_is_unknown(path, waves):
    run(path, lambda engine: heard(called(engine)))
    run(path, lambda engine: heard(called(engine)))
    sent = [chunk for chunk in waves.chunks if chunk.prompt is not None and chunk.position == 0]
    assert len(sent) == 1
    np.testing.assert_array_equal(sent[0].prompt.mel, VOICE.prompt_mel)


def test_whole_answers_come_in_long_chunks(path):
    streamed, whole = (
        run(path, lambda engine, s=streaming: heard(called(engine, streaming=s)))
        for streaming in (True, False)
    )
    assert len(whole) < len(streamed)
    assert tokens(whole) == tokens(streamed)


def test_text_in_pieces_is_spoken_while_it_comes(path, lm):
    async def use(engine: EngineClient) -> list[AudioChunk]:
        call = engine.call(order(), VOICES)
        call.begin(Prompt([], [3]), in_pieces=True)
        call.add(range(40))
        found = []
        async with aclosing(call.chunks()) as chunks:
            async for chunk in chunks:
                found.append(chunk)
                if len(found) == 1:
                    call.add(range(40, 50))
                    call.end()
                    call.done()
        return found

    chunks = run(path, use)
    assert tokens(chunks) == lm.texts == [*range(50)]
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == [FinishReason.STOP]


def test_utterance_without_a_segment_ends_without_audio(path):
    assert run(path, lambda engine: heard(called(engine, ()))) == []


@pytest.mark.parametrize("held_by", ["lm", "waves"])
def test_caller_that_leaves_ends_the_utterance_in_every_network(path, lm, waves, held_by):
    lm.holds, waves.holds = held_by == "lm", held_by == "waves"

    async def use(engine: EngineClient) -> None:
        reading = asyncio.ensure_future(heard(called(engine)))
        while not waves.chunks:
            await asyncio.sleep(0.01)
        reading.cancel()
        await asyncio.wait([reading])
        # While the client goes on: others speak through it.
        await asyncio.to_thread(eventually, lambda: lm.stopped and waves.forgotten)

    run(path, use)
    assert lm.stopped == waves.forgotten


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (InvalidInput("field", 3, "4 is"), "INVALID_ARGUMENT", "field: 3 is not accepted; 4 is"),
        (OverloadedError("full", 2.0), "UNAVAILABLE", "full"),
        (CosyVoiceError("no memory"), "INTERNAL", "tensorrt_llm: no memory"),
        (RuntimeError("/a/path"), "INTERNAL", "tensorrt_llm: internal error (RuntimeError)"),
    ],
)
@pytest.mark.parametrize("where", ["refusal", "failure"])
def test_errors_of_the_speech_lm_are_told_as_its_model_tells_them(
    path, lm, waves, where, error, status, text
):
    setattr(lm, where, error)
    with pytest.raises(StageError) as caught:
        run(path, lambda engine: heard(called(engine)))
    assert (status_of(caught.value), text in str(caught.value)) == (status, True)
    eventually(lambda: bool(waves.forgotten) == bool(waves.chunks))


def test_errors_of_token2wav_are_told_as_its_model_tells_them(path, lm, waves):
    waves.error = InvalidInput("speech_tokens", -1, "0 or more")
    with pytest.raises(StageError, match="speech_tokens: -1 is not accepted; 0 or more") as caught:
        run(path, lambda engine: heard(called(engine)))
    assert status_of(caught.value) == "INVALID_ARGUMENT"
    eventually(lambda: lm.stopped)


@pytest.mark.parametrize(("silent", "name"), [("lm", "tensorrt_llm"), ("waves", "token2wav")])
def test_network_that_says_nothing_for_too_long_is_named(path, lm, waves, silent, name):
    lm.holds, waves.holds = silent == "lm", silent == "waves"
    with pytest.raises(StageSilentError, match=f"{name} sent nothing for 0.3 s; try again later"):
        run(path, lambda engine: heard(called(engine, timeout_s=0.3)))


def test_long_silence_of_an_engine_that_lives_is_no_end(path, lm, monkeypatch):
    monkeypatch.setattr(speech_engine, "SIGN_OF_LIFE_S", 0.05)
    lm.holds = True

    async def use(engine: EngineClient) -> bool:
        reading = asyncio.ensure_future(heard(called(engine)))
        await asyncio.sleep(1.5)
        still = not reading.done()
        reading.cancel()
        await asyncio.wait([reading])
        return still

    assert run(path, use, timeout_s=0.5)


def test_calls_one_after_another_share_a_connection_unless_one_fails(path, lm, monkeypatch):
    made: list[Path] = []
    connect = host_client._connected
    monkeypatch.setattr(host_client, "_connected", lambda path: made.append(path) or connect(path))

    async def use(engine: EngineClient) -> list[int]:
        counts = []
        for error in (None, None, CosyVoiceError("once"), None, None):
            lm.failure = error
            try:
                await heard(called(engine))
            except StageError:
                assert error is not None
            counts.append(len(made))
        return counts

    assert run(path, use) == [1, 1, 1, 2, 2]


def test_message_that_makes_no_sense_ends_its_own_call_alone(path):
    async def use(engine: EngineClient) -> list[AudioChunk]:
        good, bad = called(engine), engine.call(order(), VOICES)
        bad.add([1, 2])  # of no segment
        with pytest.raises(StageError):
            await heard(bad)
        return await heard(good)

    assert tokens(run(path, use)) == [*SPEECH]


def test_engine_that_is_away_is_told_at_once_and_waited_for_on_demand(tmp_path, lm, waves):
    path = tmp_path / "networks"

    async def use(engine: EngineClient) -> list[AudioChunk]:
        with pytest.raises(StageLostError, match="token2wav is being started again; try again later"):
            engine.require()
        with pytest.raises(StageLostError):
            await heard(called(engine))
        waiting = asyncio.ensure_future(engine.back())
        await asyncio.sleep(0)
        host = await asyncio.to_thread(ModelHost, path, {}, SpeechEngine(lm, waves))
        await waiting
        engine.require()
        chunks = await heard(called(engine))
        await asyncio.to_thread(host.close)
        return chunks

    assert tokens(run(path, use)) == [*SPEECH]


CODE = """
import sys, time
from pathlib import Path
sys.path[:0] = {path!r}
from coded_networks import Lm, Waves
from cosyvoice_runtime.engine.speech_engine import SpeechEngine
from cosyvoice_runtime.serving.hosted.model_host import ModelHost
lm = Lm()
lm.holds = True
ModelHost(Path({socket!r}), {{}}, SpeechEngine(lm, Waves()))
print("open", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    code = CODE.format(path=[str(Path(__file__).parent), *sys.path], socket=str(tmp_path / "networks"))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"open\n"
    yield process
    process.kill()
    process.wait()


def first_chunk_then(process: subprocess.Popen[bytes], number: int, path: Path, timeout_s: float) -> None:
    async def use(engine: EngineClient) -> None:
        async with aclosing(called(engine).chunks()) as chunks:
            await anext(chunks)
            process.send_signal(number)
            await anext(chunks)

    run(path, use, timeout_s)


def test_end_of_the_process_ends_its_utterances_at_once(process, tmp_path):
    with pytest.raises(StageLostError):
        first_chunk_then(process, signal.SIGKILL, tmp_path / "networks", PATIENCE_S)


def test_process_that_stands_still_is_silent(process, tmp_path):
    with pytest.raises(StageSilentError, match="token2wav sent nothing for 2 s; try again later"):
        first_chunk_then(process, signal.SIGSTOP, tmp_path / "networks", 2.0)
    os.kill(process.pid, signal.SIGCONT)


def test_traced_utterance_has_its_callers_name(path, tmp_path, monkeypatch):
    (tmp_path / "trace").mkdir()
    monkeypatch.setattr(trace, "_FOLDER", str(tmp_path / "trace"))

    async def use(engine: EngineClient) -> None:
        orders = [dataclasses.replace(order(), trace=name) for name in "ab"]
        calls = [engine.call(each, VOICES) for each in orders]
        for call in calls:
            call.begin(Prompt([5]))
            call.done()
        await asyncio.gather(*map(heard, calls))

    run(path, use)
    events = trace.read(tmp_path / "trace")
    for name in "ab":
        assert {"the driver has audio", "the engine has sent audio"} <= {
            event.name for event in events if event.utterance == name
        }
    assert {event.utterance for event in events} == {"a", "b"}
