"""Speech that another server goes on with, through the whole chain: a real one stands for both."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing

import numpy as np
import pytest
from conftest import ALL_MODELS
from speaking import FEW_STEPS, TIMEOUT_S, assert_same_audio
from supervised import Supervised

from cosyvoice_client import AsyncSpeechClient, AudioChunk, RefusedError, SpeechRequest
from cosyvoice_client.errors import LostError
from cosyvoice_front.resume import UnbrokenText, unbroken
from cosyvoice_runtime.local import Synthesizer
from cosyvoice_runtime.voice import VoiceStore

TEXT = "Where did she put it? No idea. <break time='200ms'/>It is late; go on."
TURNS = [
    {"voice": "", "text": "Where did she put it? No idea."},
    {"voice": "one", "text": "It is late; go on."},
]
PIECES = ["Where did she put it? ", "No idea. ", "It is late; ", "go on."]
REQUEST = SpeechRequest(TEXT, seed=5, max_tokens=60, spoken_tokens=())
WARM = 3.0
"""A temperature at which the same seed draws other tokens, as a GPU does whose batch rounds otherwise."""


@pytest.fixture(scope="module")
def server(render_models, tmp_path_factory, tiny_checkpoint) -> Iterator[Supervised]:
    voices = tmp_path_factory.mktemp("voices")
    own = next(iter(Synthesizer.from_checkpoint(tiny_checkpoint, ode_steps=FEW_STEPS).speakers.values()))
    other = dataclasses.replace(own, key="1" * 64, speaker_embedding=np.roll(own.speaker_embedding, 1))
    VoiceStore(voices, own.checkpoint_id).register("one", other)
    texts = {"cosyvoice2.voices_dir": voices, "cosyvoice2.silence_timeout_s": 600}
    with Supervised(render_models(ALL_MODELS, **texts)) as server:
        yield server


class Servers:
    """The first one is lost after so many chunks, and the other draws with a temperature of its own.

    Attributes:
        counted: by the front.
        starts: character with which each server was asked to begin.
    """

    def __init__(
        self, client: AsyncSpeechClient, trim: str | None, chunks: int, temperature: float | None = None
    ) -> None:
        self._client, self._chunks, self._temperature = client, chunks, temperature
        self._request = dataclasses.replace(REQUEST, trim_silence=trim)
        self._asked = 0
        self.counted: list[str] = []
        self.starts: list[int | None] = []

    def next(
        self, text: str, spoken: Sequence[int], turns: Sequence[dict[str, str]] | None = None
    ) -> tuple[SpeechRequest, int | None]:
        """The request to the next server, and after how many chunks it is lost."""
        self._asked += 1
        lost = self._chunks if self._asked == 1 else None
        temperature = None if self._asked == 1 else self._temperature
        changes = {"text": text, "spoken_tokens": spoken, "temperature": temperature, "turns": turns}
        return dataclasses.replace(self._request, **changes), lost

    async def whole(self) -> list[AudioChunk]:
        return await self._unbroken(TEXT)

    async def in_turns(self) -> list[AudioChunk]:
        return await self._unbroken("", TURNS)

    async def _unbroken(self, text: str, turns: Sequence[dict[str, str]] | None = None) -> list[AudioChunk]:
        async def speak(spoken: Sequence[int], start: int | None) -> AsyncGenerator[AudioChunk, None]:
            request, lost = self.next(text, spoken, turns)
            self.starts.append(start)
            request = dataclasses.replace(request, start_character=start)
            async with aclosing(self._client.speak(request)) as chunks:
                async for chunk in until(chunks, lost):
                    yield chunk

        characters = 0 if self._request.trim_silence == "both" else len(text)
        return [chunk async for chunk in unbroken(speak, self.counted.append, characters)]

    async def in_pieces(self) -> list[AudioChunk]:
        def open_text(spoken: Sequence[int]) -> LostText:
            request, lost = self.next("", spoken)
            return LostText(self._client, request, lost)

        async with UnbrokenText(open_text, self.counted.append) as speech:
            for piece in PIECES[:2]:
                await speech.push(piece)
            await speech.flush()
            for piece in PIECES[2:]:
                await speech.push(piece)
            await speech.end()
            return [chunk async for chunk in speech]


async def until(chunks, lost: int | None) -> AsyncGenerator[AudioChunk, None]:
    number = 0
    async for chunk in chunks:
        if number == lost:
            raise LostError("the server is gone")
        yield chunk
        number += 1


class LostText:
    """A text in pieces whose server is lost after so many chunks."""

    def __init__(self, client: AsyncSpeechClient, request: SpeechRequest, lost: int | None) -> None:
        self._text, self._lost = client.speak_text(request), lost
        self.push, self.flush, self.end = self._text.push, self._text.flush, self._text.end

    async def __aenter__(self) -> LostText:
        await self._text.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._text.__aexit__(*error)

    def __aiter__(self) -> AsyncGenerator[AudioChunk, None]:
        return until(self._text, self._lost)


def samples(chunks: Sequence[AudioChunk]) -> np.ndarray:
    return np.concatenate([chunk.samples for chunk in chunks])


def ends(chunks: Sequence[AudioChunk]) -> list[str]:
    return [chunk.finish_reason for chunk in chunks if chunk.finish_reason]


@pytest.mark.parametrize("trim", [None, "both"])
@pytest.mark.parametrize("way", ["whole", "in_pieces", "in_turns"])
def test_what_was_heard_stands_and_speech_goes_on_whatever_the_other_server_draws(server, way, trim):
    async def work() -> None:
        async with AsyncSpeechClient(server.grpc_url, timeout_s=TIMEOUT_S) as client:
            uncut = await getattr(Servers(client, trim, 1000), way)()
            assert len(uncut) > 3
            for lost in (1, len(uncut) - 1):
                heard = samples(uncut[:lost])
                same, other = Servers(client, trim, lost), Servers(client, trim, lost, WARM)
                assert_same_audio(samples(await getattr(same, way)()), samples(uncut))
                gone_on = await getattr(other, way)()
                assert same.counted == other.counted == ["resumed"]
                from_segments = way == "whole" and trim != "both" and lost > 1
                assert [start is not None for start in same.starts[1:]] == [from_segments] * (
                    way != "in_pieces"
                )
                assert_same_audio(samples(gone_on)[: len(heard)], heard)
                assert len(ends(gone_on)) == len(ends(uncut))
                if lost == 1:
                    assert not np.array_equal(samples(gone_on), samples(uncut))

    asyncio.run(work())


def test_an_answer_from_a_character_on_is_the_end_of_the_whole(server):
    """Streamed and at once, from each end of a segment that the whole tells."""
    text = "Where did she put it?\n\nNo idea.\n\n# Late\nIt is late; go on."

    async def work() -> None:
        async with AsyncSpeechClient(server.grpc_url, timeout_s=TIMEOUT_S) as client:
            asked = dataclasses.replace(REQUEST, text=text, spoken_tokens=None, paragraph_pause_s=0.2)
            whole = [chunk async for chunk in client.speak(asked)]
            assert {chunk.start_character for chunk in whole} == {None}
            told = [chunk.spoken_characters for chunk in whole if chunk.finish_reason]
            assert told == [21, 31, 39, len(text)]
            for number, start in enumerate(told[:-1], 1):
                later = dataclasses.replace(asked, start_character=start + 1)
                heard = [chunk async for chunk in client.speak(later)]
                ended = [place for place, chunk in enumerate(whole, 1) if chunk.finish_reason]
                assert_same_audio(samples(heard), samples(whole[ended[number - 1] :]))
                assert {chunk.start_character for chunk in heard} == {start}
                assert [chunk.spoken_characters for chunk in heard if chunk.finish_reason] == told[number:]
                at_once = await client.synthesize(later)
                assert_same_audio(at_once.samples, samples(heard))
                assert (at_once.start_character, at_once.spoken_characters) == (start, len(text))
            limit = f"start_character: {len(text)} is not accepted; less than the {len(text)} characters"
            with pytest.raises(RefusedError, match=limit):
                await client.synthesize(dataclasses.replace(asked, start_character=len(text)))

    asyncio.run(work())


def test_tokens_are_told_to_nobody_who_does_not_ask_and_wrong_ones_are_refused(server):
    async def work() -> None:
        async with AsyncSpeechClient(server.grpc_url, timeout_s=TIMEOUT_S) as client:
            asked = dataclasses.replace(REQUEST, text="No.", max_tokens=9)
            plain = dataclasses.replace(asked, spoken_tokens=None)
            assert not any([chunk.spoken_tokens async for chunk in client.speak(plain)])
            told = [token async for chunk in client.speak(asked) for token in chunk.spoken_tokens]
            assert told[-1] < 0 <= min(told[:-1])
            whole = await client.synthesize(asked)
            assert whole.spoken_tokens == told
            for wrong, limit in [
                ([70_000], "tokens are 0 to"),
                ([-4], "ends -3 to -1"),
                ([1] * 10, "at most 9"),
                ([1, -1] * 2, "the text has 1"),
                ([1] * 70_000, "at most 65536"),
            ]:
                with pytest.raises(RefusedError, match=f"spoken_tokens.*{limit}"):
                    await client.synthesize(dataclasses.replace(asked, spoken_tokens=wrong))

    asyncio.run(work())
