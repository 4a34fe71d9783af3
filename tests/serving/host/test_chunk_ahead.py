"""A first chunk that goes from the speech LM straight to token2wav."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing

import numpy as np
import pytest
from asked_models import (
    PATIENCE_S,
    PROMPT,
    PROMPT_TENSORS,
    SAMPLING,
    SETTINGS,
    UNKNOWN_VOICE,
    VOCABULARY,
    VOICE,
    Asked,
    ReadGroups,
    alone,
    apart,
    asked,
    awaited,
    begin,
    both,
    end,
    first_wave,
    speak,
)

from cosyvoice_runtime.errors import (
    CosyVoiceError,
    NotFoundError,
    OverloadedError,
    StageError,
    StageSilentError,
    WithdrawnError,
)
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.pipeline.hop import HopPolicy
from cosyvoice_runtime.pipeline.text_segment import TextPieces
from cosyvoice_runtime.pipeline.utterance import SegmentSpeech
from cosyvoice_runtime.serving.triton import stage_client
from cosyvoice_runtime.serving.triton.chunk_ahead import ChunkAhead
from cosyvoice_runtime.serving.triton.schema import TOKEN2WAV
from cosyvoice_runtime.serving.triton.stage_calls import StageCalls
from cosyvoice_runtime.serving.triton.stage_client import StageClient

HOP = HopPolicy(25, 3, 10, 25, 100, 25)


@pytest.mark.parametrize("computed_first", [False, True])
def test_first_chunk_is_the_one_that_went_ahead_and_is_asked_for_once(host, computed_first):
    async def use(stages: StageClient) -> list[float]:
        read = begin(stages)
        lm, wave = await asked(host)
        assert lm.inputs.scalar("first_tokens") == 3
        assert "speech_tokens" not in wave.names
        texts = {name: wave.inputs.text(name) for name in ("utterance_id", "tokens_of", "voice_key")}
        assert texts == {"utterance_id": "id", "tokens_of": "id", "voice_key": VOICE.prompt_key}
        names = ("position", "last", "noise_seed", "speed", "cushion", "continues")
        assert [wave.inputs.scalar(name) for name in names] == [0, False, 7, 1.5, 0.0, True]
        lm.say(1, 2, 3)
        if computed_first:
            wave.make(0.5, 0.25)
            lm.say(4)
            await read.until(4)  # so that the waveform is here, too
        await read.until(3)
        waving = first_wave(stages, 1, 2, 3)
        if not computed_first:
            await asyncio.sleep(0)
            wave.make(0.5, 0.25)
        samples = await waving
        await end(lm, read)
        later = asyncio.create_task(stages.wave("id", [4, 9], 3, True, SETTINGS, 1.0))
        rest = await host.next()
        assert rest.inputs.array("speech_tokens").tolist() == [4, 9]
        assert rest.inputs.scalar("position") == 3
        assert "tokens_of" not in rest.names
        rest.make(0.125)
        return [*samples.tolist(), *(await later).tolist()]

    assert speak(host, use) == [0.5, 0.25, 0.125]
    assert host.quiet
    assert (host.stops, host.cancels) == ([], [])


@pytest.mark.parametrize("refused_first", [False, True])
def test_chunk_of_an_unknown_voice_is_asked_for_again_with_the_voice(host, refused_first):
    async def use(stages: StageClient) -> list[float]:
        read = begin(stages)
        lm, wave = await asked(host)
        lm.say(1, 2, 3)
        await read.until(3)
        if refused_first:
            wave.fail(UNKNOWN_VOICE)
            lm.say(4)
            await read.until(4)
        waving = first_wave(stages, 1, 2, 3)
        if not refused_first:
            await asyncio.sleep(0)
            wave.fail(UNKNOWN_VOICE)
        again = await host.next()
        assert again.names >= {"speech_tokens", *PROMPT_TENSORS}
        assert "tokens_of" not in again.names
        assert again.inputs.array("speech_tokens").tolist() == [1, 2, 3]
        assert again.inputs.array("prompt_speech_tokens").tolist() == VOICE.speech_tokens.tolist()
        again.make(0.5)
        samples = await waving
        await end(lm, read)
        return samples.tolist()

    assert speak(host, use) == [0.5]
    assert host.quiet


def test_other_errors_of_the_chunk_are_those_of_the_wave_and_the_stream_goes_on(host):
    async def use(stages: StageClient) -> None:
        read, waving, lm, wave = await awaited(host, stages)
        wave.fail(OverloadedError("max_queue_size: 8 wait"))
        with pytest.raises(StageError, match="max_queue_size: 8 wait") as caught:
            await waving
        assert caught.value.status == "UNAVAILABLE"
        await end(lm, read)

    speak(host, use)
    assert host.quiet


@pytest.mark.parametrize(
    ("ways", "options"),
    [
        (both, {"ahead": None}),
        (both, {"first_tokens": 61}),
        (alone, {}),
        (apart, {}),
    ],
    ids=["not wanted", "more than the stream may have", "through the server", "two processes"],
)
def test_chunk_that_may_not_go_ahead_is_asked_for_with_its_tokens(host, ways, options):
    async def use(stages: StageClient) -> list[float]:
        read = begin(stages, **options)
        lm = await host.next()
        assert lm.inputs.scalar("first_tokens") == min(options.get("first_tokens", 3), 60)
        lm.say(1, 2, 3)
        await end(lm, read)  # for which a request beside it would have to be answered
        waving = first_wave(stages, 1, 2, 3)
        wave = await host.next()
        assert wave.inputs.array("speech_tokens").tolist() == [1, 2, 3]
        assert "tokens_of" not in wave.names
        wave.make(0.5)
        return (await waving).tolist()

    assert speak(host, use, ways) == [0.5]
    assert host.quiet


def test_chunk_of_as_many_tokens_as_the_stream_may_have_goes_ahead(host):
    async def use(stages: StageClient) -> None:
        read = begin(stages, first_tokens=60)
        lm, wave = await asked(host)
        assert lm.inputs.scalar("first_tokens") == 60
        lm.say(*range(59))
        await read.until(59)
        waving = first_wave(stages, *range(59), last=True)
        await asyncio.sleep(0)
        wave.make(0.5)
        await waving
        await end(lm, read)

    speak(host, use)


def test_each_utterance_has_the_chunk_of_its_own(host):
    async def use(stages: StageClient) -> list[list[float]]:
        names = ("a", "b")
        reads = {name: ReadGroups(stages.generate(PROMPT, SAMPLING, name, 1, SETTINGS)) for name in names}
        requests = [await host.next() for _ in range(4)]
        for each in requests:
            if each.model == "tensorrt_llm":
                each.say(1)
        for read in reads.values():
            await read.until(1)
        waves = [asyncio.create_task(stages.wave(name, [1], 0, False, SETTINGS, 0.0)) for name in names]
        for each in requests:
            if each.model == "token2wav":
                each.make(float(names.index(each.inputs.text("tokens_of"))))
        found = [(await wave).tolist() for wave in waves]
        for each in requests:
            if each.model == "tensorrt_llm":
                each.say(reason="stop")
                each.finish()
        for read in reads.values():
            await read.reading
        return found

    assert speak(host, use) == [[0.0], [1.0]]
    assert host.quiet


@pytest.mark.parametrize("said", [(), (1, 2, 3)], ids=["nothing said", "nothing asked for"])
@pytest.mark.parametrize("then", ["withdrawn", "made", "hung up"])
def test_utterance_that_is_left_before_its_first_wave_is_forgotten_by_token2wav(host, said, then):
    """Again, if the chunk had come later than the first cancel, or may have."""

    async def use(stages: StageClient) -> None:
        read = begin(stages)
        lm, wave = await asked(host)
        if said:
            lm.say(*said)
        await read.until(len(said))
        await read.leave()
        await host.until(lambda: bool(host.stops and host.cancels))
        if then == "withdrawn":
            wave.fail(WithdrawnError("the speech LM ended before the chunk's tokens were there"))
        elif then == "made":
            wave.make(0.5)
        else:
            host.hang_up()

    speak(host, use)
    assert set(host.stops) == {"id"}
    assert host.cancels == ["id"] * (1 if then == "withdrawn" else 2)
    assert host.quiet


def test_stream_that_is_left_before_it_has_begun_asks_nobody(host):
    async def use(stages: StageClient) -> None:
        read = begin(stages)
        await read.leave()

    speak(host, use)
    assert host.quiet
    assert (host.stops, host.cancels) == ([], [])


def test_utterance_that_is_dropped_after_its_stream_ended_is_forgotten(host):
    async def use(stages: StageClient) -> None:
        read = begin(stages)
        lm, wave = await asked(host)
        wave.make(0.5)
        await end(lm, read)
        stages.drop("id")

    speak(host, use)
    assert set(host.cancels) == {"id"}
    assert host.stops == []


def test_wave_that_nobody_awaits_any_more_is_forgotten_when_it_has_come(host):
    async def use(stages: StageClient) -> None:
        read, waving, _, wave = await awaited(host, stages)
        waving.cancel()
        await read.leave()
        stages.drop("id")
        await host.until(lambda: bool(host.stops and host.cancels))
        wave.make(0.5)

    speak(host, use)
    assert host.cancels == ["id", "id"]
    assert host.quiet


def test_error_of_the_speech_lm_is_the_waves_too(host):
    async def use(stages: StageClient) -> None:
        read, waving, lm, _ = await awaited(host, stages)
        lm.finish(CosyVoiceError("no memory"))
        for failing in (read.reading, waving):
            with pytest.raises(StageError, match="tensorrt_llm: no memory"):
                await failing

    speak(host, use)
    assert host.quiet
    assert host.stops == []
    assert set(host.cancels) == {"id"}  # it may be open there


def test_stream_that_ends_without_a_reason_keeps_nothing(host):
    async def use(stages: StageClient) -> None:
        read = begin(stages)
        lm, wave = await asked(host)
        wave.fail(WithdrawnError("the speech LM ended before the chunk's tokens were there"))
        lm.finish()
        await read.reading

    speak(host, use)


@pytest.mark.parametrize("chunk_refused", [False, True])
def test_error_of_the_speech_lm_before_any_token_leaves_nothing_to_be_done(host, chunk_refused):
    async def use(stages: StageClient) -> None:
        read = begin(stages)
        lm, wave = await asked(host)
        if chunk_refused:
            wave.fail(NotFoundError("tokens_of", "id", "no stream has this id"))
        lm.finish(OverloadedError("max_queue_size: all slots are taken"))
        with pytest.raises(StageError, match="all slots are taken"):
            await read.reading

    speak(host, use)
    assert host.quiet
    assert (host.stops, host.cancels) == ([], [])


def test_process_that_hangs_up_fails_stream_and_wave(host):
    async def use(stages: StageClient) -> None:
        read, waving, *_ = await awaited(host, stages)
        host.hang_up()
        for failing in (read.reading, waving):
            with pytest.raises(StageError, match="the host hung up"):
                await failing

    speak(host, use)


def test_first_chunk_of_a_text_in_pieces_goes_ahead_of_its_text(host):
    async def use(stages: StageClient) -> list[float]:
        pieces = TextPieces()
        sampling = SamplingOptions(ceiling=60)
        read = ReadGroups(stages.generate_from_pieces(Prompt(()), pieces, sampling, "id", 3, SETTINGS))
        lm, wave = await asked(host)
        assert "text_open" in lm.names
        pieces.put([1, 2])
        more = await host.next()
        assert "more_text" in more.names
        more.finish()
        lm.say(1, 2, 3)
        await read.until(3)
        waving = first_wave(stages, 1, 2, 3)
        await asyncio.sleep(0)
        wave.make(0.5)
        samples = await waving
        pieces.end()
        more = await host.next()
        assert "end_text" in more.names
        more.finish()
        await end(lm, read)
        return samples.tolist()

    assert speak(host, use) == [0.5]
    assert host.quiet
    assert (host.stops, host.cancels) == ([], [])


@pytest.mark.parametrize("computed_first", [False, True])
def test_text_in_pieces_that_ends_before_its_first_chunk_is_heard_and_is_not_forgotten(
    host, computed_first, monkeypatch
):
    """However long that takes: it is no cleanup."""
    monkeypatch.setattr(stage_client, "CLEANUP_TIMEOUT_S", PATIENCE_S if computed_first else 0.0)

    async def use(stages: StageClient) -> list[float]:
        pieces = TextPieces()
        read = ReadGroups(
            stages.generate_from_pieces(Prompt(()), pieces, SamplingOptions(ceiling=60), "id", 3, SETTINGS)
        )
        lm, wave = await asked(host)
        pieces.put([1])
        pieces.end()
        for _ in range(2):
            (await host.next()).finish()
        if computed_first:
            wave.make(0.5)
        lm.say(1, 2, reason="stop")
        lm.finish()
        await read.reading  # which ends with the reason
        waving = first_wave(stages, 1, 2, last=True)
        for _ in range(20):
            await asyncio.sleep(0)
        if not computed_first:
            wave.make(0.5)
        return (await waving).tolist()

    assert speak(host, use) == [0.5]
    assert host.quiet
    assert (host.stops, host.cancels) == ([], [])


@pytest.mark.parametrize("failed_first", [False, True])
def test_chunk_is_answered_or_fails_once(failed_first):
    """What comes later is nobody's."""
    late = StageError("too late", "UNAVAILABLE")

    async def use() -> None:
        chunk = ChunkAhead({"position": 0}, "id")
        assert chunk.request.schema is TOKEN2WAV
        assert chunk.request.inputs == {"position": 0, "tokens_of": "id"}
        if failed_first:
            chunk.give_up(StageError("no memory", "INTERNAL"))
        else:
            chunk.request.answered({"waveform": np.ones((1, 2), np.float32)})
        for outcome in (late, {"waveform": np.zeros((1, 1), np.float32)}):
            chunk.request.answered(outcome)
        chunk.give_up(late)
        if failed_first:
            with pytest.raises(StageError, match="no memory"):
                await chunk.answer
        else:
            assert (await chunk.answer)["waveform"].tolist() == [[1.0, 1.0]]

    asyncio.run(use())


async def hear(stages: StageClient) -> list[object]:
    """Chunks of a segment, to its end."""
    segment = SegmentSpeech(stages, HOP, SETTINGS, lambda: 0.0).chunks(PROMPT, SAMPLING)
    async with aclosing(segment) as chunks:
        return [each async for each in chunks]


@pytest.mark.parametrize("reason", ["cancelled", "error"])
def test_stream_that_ends_unspoken_without_tokens_keeps_nothing(host, reason):
    async def use(stages: StageClient) -> None:
        hearing = asyncio.create_task(hear(stages))
        lm, wave = await host.next(), await host.next()
        wave.fail(WithdrawnError("no tokens"))
        lm.say(reason=reason)
        lm.finish()
        with pytest.raises(CosyVoiceError, match="the speech LM"):
            await hearing

    speak(host, use)


@pytest.mark.parametrize("ways", [both, alone], ids=["ahead", "asked for"])
def test_utterance_of_which_token2wav_says_nothing_is_forgotten(host, ways):
    async def use() -> None:
        stages = StageClient(StageCalls(ways(host.path), 3.0, lambda _: os.getpid()), VOCABULARY)
        hearing = asyncio.create_task(hear(stages))
        lm = await host.next()
        lm.say(1, 2, reason="stop")
        lm.finish()
        with pytest.raises(StageSilentError, match="token2wav sent nothing"):
            await hearing
        await stages.close()

    asyncio.run(asyncio.wait_for(use(), PATIENCE_S))
    assert len(host.cancels) == 1


def test_chunks_go_ahead_while_few_speak(host):
    async def use(stages: StageClient) -> list[int]:
        speaking: list[tuple[ReadGroups, list[Asked]]] = []
        for number in range(stage_client.FEW_AHEAD + 2):
            if number > stage_client.FEW_AHEAD:  # all others have ended
                await end_all(speaking)
            stream = ReadGroups(stages.generate(PROMPT, SAMPLING, f"id{number}", 3, SETTINGS))
            requests = [await host.next()]
            if number != stage_client.FEW_AHEAD:
                requests.append(await host.next())
            assert {each.id for each in requests} == {f"id{number}"}
            speaking.append((stream, requests))
        found = [len(requests) for _, requests in speaking]
        await end_all(speaking[-1:])
        return found

    async def end_all(speaking: list[tuple[ReadGroups, list[Asked]]]) -> None:
        for stream, (lm, *waves) in speaking:
            for wave in waves:
                wave.fail(WithdrawnError("no tokens"))
            lm.finish()
            await stream.reading

    assert speak(host, use) == [2] * stage_client.FEW_AHEAD + [1, 2]


def test_text_in_pieces_whose_chunk_token2wav_says_nothing_of_is_forgotten(host):
    async def use() -> None:
        calls = StageCalls(both(host.path), 3.0, lambda _: os.getpid())
        stages, pieces = StageClient(calls, VOCABULARY, text_timeout_s=10.0), TextPieces()
        segment = SegmentSpeech(stages, HOP, SETTINGS, lambda: 0.0)
        hearing = asyncio.create_task(anext(segment.chunks(PROMPT, SamplingOptions(ceiling=60), pieces)))
        lm, _ = await host.next(), await host.next()
        lm.say(1, 2, reason="stop")
        lm.finish()
        with pytest.raises(StageSilentError, match="token2wav sent nothing"):
            await hearing
        await stages.close()

    asyncio.run(asyncio.wait_for(use(), PATIENCE_S))
    assert host.cancels


def test_of_a_crowd_that_comes_at_once_a_few_chunks_go_ahead(host):
    most = stage_client.FEW_AHEAD

    async def use(stages: StageClient) -> int:
        names = [f"id{number}" for number in range(2 * most)]
        streams = [ReadGroups(stages.generate(PROMPT, SAMPLING, name, 3, SETTINGS)) for name in names]
        requests = [await host.next() for _ in range(3 * most)]
        waves = [each for each in requests if each.model == TOKEN2WAV.name]
        for wave in waves:
            wave.fail(WithdrawnError("no tokens"))
        for each in requests:
            if each.model != TOKEN2WAV.name:
                each.finish()
        for stream in streams:
            await stream.reading
        return len(waves)

    assert speak(host, use) == most
