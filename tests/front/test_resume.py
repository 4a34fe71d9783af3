"""Speech that goes on from another server when its own is lost."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from itertools import accumulate

import numpy as np
import pytest

from cosyvoice_client import AudioChunk, UnavailableError
from cosyvoice_client.errors import LostError, RefusedError
from cosyvoice_client.words import TimedWord
from cosyvoice_front.resume import HeardSpeech, UnbrokenText, unbroken

RATE = 24_000
WHOLE = np.random.default_rng(0).uniform(-0.5, 0.5, 3 * RATE).astype(np.float32)
SEGMENTS = (RATE, 2 * RATE, 3 * RATE)
"""Samples at which a segment of the text has been spoken."""
GONE = LostError("server: Socket closed")
FULL = UnavailableError("server: 4 utterances are in progress, the limit; try again in 0.1 s")


def chunks(size: int, samples: np.ndarray = WHOLE, ends: tuple[int, ...] = SEGMENTS) -> list[AudioChunk]:
    """The speech in chunks of a size, of which the last one of a segment says so."""
    made, begin = [], 0
    for number, end in enumerate(ends, 1):
        while begin < end:
            cut = min(begin + size, end)
            is_last = cut == end
            reason, spoken = ("stop", 10 * number) if is_last else ("", None)
            made.append(AudioChunk(samples[begin:cut], 0.0, reason, spoken))
            begin = cut
    return made


class Servers:
    """Each request goes to the next script: chunks, and what is raised after them."""

    def __init__(self, *scripts: list[AudioChunk | Exception]) -> None:
        self.scripts = list(scripts)
        self.counted: list[str] = []
        self.asked: list[list[int]] = []
        self.starts: list[int | None] = []

    async def speak(
        self, spoken: Sequence[int], start: int | None = None
    ) -> AsyncGenerator[AudioChunk, None]:
        self.asked.append(list(spoken))
        self.starts.append(start)
        for each in self.scripts.pop(0):
            if isinstance(each, Exception):
                raise each
            yield each

    def heard(self, characters: int = 0) -> list[AudioChunk]:
        async def listen() -> list[AudioChunk]:
            return [chunk async for chunk in unbroken(self.speak, self.counted.append, characters)]

        return asyncio.run(asyncio.wait_for(listen(), 30))


def samples_of(heard: list[AudioChunk]) -> np.ndarray:
    return np.concatenate([chunk.samples for chunk in heard])


def facts(heard: list[AudioChunk]) -> list[tuple[str, int | None]]:
    return [(chunk.finish_reason, chunk.spoken_characters) for chunk in heard if chunk.finish_reason]


ENDINGS = [("stop", 10), ("stop", 20), ("stop", 30)]


@pytest.mark.parametrize("after", [0, 1, 3, 7, 8, 15])
@pytest.mark.parametrize("size", [700, 5_000, 24_000, 80_000])
def test_speech_of_a_lost_server_goes_on_without_a_missing_or_repeated_sample(after, size):
    servers = Servers([*chunks(6_000)[:after], GONE], chunks(size))
    heard = servers.heard()
    assert np.array_equal(samples_of(heard), WHOLE)
    assert facts(heard) == ENDINGS
    assert servers.counted == ["resumed"] * (after > 0)


def test_two_servers_may_be_lost_and_the_third_ends_it():
    servers = Servers([*chunks(6_000)[:2], GONE], [*chunks(6_000)[:5], GONE], chunks(6_000))
    assert np.array_equal(samples_of(servers.heard()), WHOLE)
    servers = Servers(*[[*chunks(6_000)[:2], GONE]] * 3)
    with pytest.raises(LostError):
        servers.heard()
    assert servers.counted == ["resumed", "resumed"]


def with_tokens(made: list[AudioChunk]) -> list[AudioChunk]:
    """The chunks, each with two tokens, which are numbered through."""
    return [
        dataclasses.replace(chunk, spoken_tokens=[2 * number, 2 * number + 1])
        for number, chunk in enumerate(made)
    ]


def test_tokens_of_what_was_heard_are_handed_to_each_server_that_goes_on():
    made = with_tokens(chunks(6_000))
    shorter = [dataclasses.replace(made[0], spoken_tokens=range(4)), GONE]
    servers = Servers([*made[:3], GONE], shorter, made)
    assert np.array_equal(samples_of(servers.heard()), WHOLE)
    assert servers.asked == [[], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]]
    servers = Servers([*made[:3], GONE], [*made[:5], GONE], made)
    servers.heard()
    assert servers.asked[2] == list(range(10))


def with_words(made: list[AudioChunk], late_s: float = 0.0, moved_s: float = 0.0) -> list[AudioChunk]:
    """The chunks, which tell a word for each tenth of a second, some time after its end, and all at the end.

    Args:
        moved_s: by how much another server takes words to be later.
    """
    words = [TimedWord(str(number), number / 10, (number + 1) / 10 - 0.01) for number in range(30)]
    told, heard_s = [], 0.0
    for chunk in made:
        heard_s += chunk.seconds
        over = [word for word in words if word.end_s <= heard_s - late_s or heard_s > 2.99]
        words = words[len(over) :]
        over = [TimedWord(word.text, word.start_s + moved_s, word.end_s + moved_s) for word in over]
        told.append(dataclasses.replace(chunk, words=over, words_by="attention"))
    return told


@pytest.mark.parametrize("moved_s", [0.0, 0.004, -0.03])
@pytest.mark.parametrize(("late_s", "again_late_s"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.5)])
@pytest.mark.parametrize(("after", "size"), [(1, 5_000), (3, 700), (7, 24_000), (8, 6_000), (11, 80_000)])
def test_words_are_told_once_and_in_order_whichever_server_times_them(
    after, size, late_s, again_late_s, moved_s
):
    first = with_words(chunks(6_000), late_s)
    servers = Servers([*first[:after], GONE], with_words(chunks(size), again_late_s, moved_s))
    heard = servers.heard()
    words = [word for chunk in heard for word in chunk.words]
    assert [word.text for word in words] == [str(number) for number in range(30)]
    times = [second for word in words for second in word[1:]]
    assert times == sorted(times)
    assert np.array_equal(samples_of(heard), WHOLE)
    ends = accumulate(chunk.seconds for chunk in heard)
    for chunk, end_s in zip(heard, ends, strict=True):
        assert all(word.end_s <= end_s + max(moved_s, 0.0) for word in chunk.words)


@pytest.mark.parametrize("moved_s", [0.0, 0.004, -0.03])
@pytest.mark.parametrize("late_s", [0.0, 0.3])
@pytest.mark.parametrize("after", [1, 4, 5, 7, 8, 9, 12])
@pytest.mark.parametrize("size", [700, 5_000, 24_000])
def test_words_of_a_segment_that_is_asked_for_alone_count_from_where_the_speech_began(
    after, size, late_s, moved_s
):
    """A server tells all words of a segment by its end; their seconds count from where its answer begins."""
    made = _late(with_words(chunks(6_000)), late_s)
    ended = min(sum(bool(chunk.finish_reason) for chunk in made[:after]), 2)
    again = []
    for chunk in _late(with_words(chunks(size), 0.0, moved_s), late_s)[-(3 - ended) * -(-RATE // size) :]:
        words = [TimedWord(text, begin_s - ended, end_s - ended) for text, begin_s, end_s in chunk.words]
        again.append(dataclasses.replace(chunk, words=words))
    servers = Servers([*made[:after], GONE], again)
    heard = servers.heard(characters=30)
    assert np.array_equal(samples_of(heard), WHOLE)
    assert servers.starts == [None, 10 * ended or None]
    words = [word for chunk in heard for word in chunk.words]
    assert [word.text for word in words] == [str(number) for number in range(30)]
    for number, word in enumerate(words):
        assert word.start_s == pytest.approx(number / 10, abs=abs(moved_s) + 1e-6)
        assert word.end_s == pytest.approx((number + 1) / 10 - 0.01, abs=abs(moved_s) + 1e-6)
    times = [second for word in words for second in word[1:]]
    assert times == sorted(times)


def _late(made: list[AudioChunk], late_s: float) -> list[AudioChunk]:
    """The chunks, whose words come some time later, at the latest with the end of their segment."""
    told, waiting, heard_s = [], [], 0.0
    for chunk in made:
        heard_s += chunk.seconds
        waiting += chunk.words
        over = [word for word in waiting if chunk.finish_reason or word.end_s <= heard_s - late_s]
        waiting = waiting[len(over) :]
        told.append(dataclasses.replace(chunk, words=over))
    return told


def test_what_is_found_of_a_segment_is_told_once():
    """Rounding moves its end, so that it comes again with new samples."""
    found = {"checked": True, "redraws": 1, "findings": []}
    time_s = np.arange(3 * RATE) / RATE
    speech = (0.15 * (1 + np.sin(6 * np.pi * time_s)) * np.sin(400 * np.pi * time_s)).astype(np.float32)
    rounded = speech + np.random.default_rng(1).normal(0, 4e-3, len(speech)).astype(np.float32)
    scripts = []
    for samples, ends in ((speech, SEGMENTS), (rounded, (RATE + 240, 2 * RATE, 3 * RATE))):
        scripts.append(
            [
                dataclasses.replace(chunk, verification=found if chunk.finish_reason else None)
                for chunk in with_tokens(chunks(6_000, samples, ends))
            ]
        )
    heard = Servers([*scripts[0][:4], GONE], scripts[1]).heard()
    assert [chunk.verification for chunk in heard if chunk.verification] == [found] * 3


def test_text_that_has_ended_amid_a_segment_does_not_go_on_behind_that():
    made = chunks(6_000)[:7]
    made.append(dataclasses.replace(chunks(6_000)[7], finish_reason="incomplete", spoken_characters=17))
    again = [dataclasses.replace(chunk) for chunk in made[4:]]
    servers = Servers([*made, GONE], again)
    heard = servers.heard(characters=30)
    assert servers.starts == [None, 10]
    assert np.array_equal(samples_of(heard), WHOLE[: 2 * RATE])
    assert facts(heard) == [("stop", 10), ("incomplete", 17)]


def test_lost_end_of_a_segment_is_told_once_and_not_lost():
    made = chunks(24_000)
    last = AudioChunk(WHOLE[:0], 0.0, "stop", 10)
    without = [AudioChunk(made[0].samples, 0.0), last]
    for script in ([without[0], GONE], [*without, GONE], [made[0], GONE]):
        heard = Servers(script, [*without, *made[1:]]).heard()
        assert np.array_equal(samples_of(heard), WHOLE)
        assert facts(heard) == ENDINGS


def test_end_that_comes_later_from_another_server_is_told_once():
    """Silence is left out by a threshold, so that rounding moves the end of a segment by 10 ms."""
    time_s = np.arange(3 * RATE) / RATE
    loudness = 0.15 * (1 + np.sin(2 * np.pi * 3 * time_s))
    speech = (loudness * np.sin(2 * np.pi * 200 * time_s)).astype(np.float32)
    rounded = speech + np.random.default_rng(1).normal(0, 4e-3, len(speech)).astype(np.float32)
    first = with_tokens(chunks(6_000, speech)[:4])
    later = with_tokens(chunks(6_000, rounded, (RATE + 240, 2 * RATE, 3 * RATE)))
    heard = Servers([*first, GONE], later).heard()
    assert facts(heard) == ENDINGS
    assert len(samples_of(heard)) == len(speech)


@pytest.mark.parametrize("wrong", ["another", "shorter"])
def test_another_speech_is_not_joined(wrong):
    other = WHOLE.copy()
    other[5_000] += 0.01
    again = chunks(6_000, other) if wrong == "another" else chunks(6_000)[:1]
    servers = Servers([*chunks(6_000)[:2], GONE], again)
    with pytest.raises(LostError, match="Socket closed"):
        servers.heard()
    assert servers.counted == ["resumed", "differs"]


def test_rounding_is_no_other_speech():
    servers = Servers([*chunks(6_000)[:2], GONE], chunks(6_000, WHOLE + np.float32(1e-4)))
    assert len(samples_of(servers.heard())) == len(WHOLE)


@pytest.mark.parametrize("after", range(13))
@pytest.mark.parametrize("size", [700, 5_000, 24_000])
def test_speech_goes_on_with_the_segment_in_which_its_server_was_lost(after, size):
    """A text of 30 characters has segments of 10; the last one is spoken again even where it has ended."""
    made = chunks(6_000)
    ended = sum(bool(chunk.finish_reason) for chunk in made[:after])
    first = min(ended, 2)
    again = chunks(size, WHOLE[first * RATE :], tuple(end - first * RATE for end in SEGMENTS[first:]))
    again = [
        dataclasses.replace(each, spoken_characters=each.spoken_characters + 10 * first)
        if each.finish_reason
        else each
        for each in again
    ]
    servers = Servers([*made[:after], GONE], again)
    heard = servers.heard(characters=30)
    assert np.array_equal(samples_of(heard), WHOLE)
    assert facts(heard) == ENDINGS
    assert servers.starts == [None, 10 * first or None]


def test_tokens_are_those_of_the_segment_that_is_asked_for():
    made = with_tokens(chunks(6_000))
    second = [dataclasses.replace(chunk, spoken_tokens=()) for chunk in made[4:]]
    servers = Servers([*made[:6], GONE], [GONE], [*made[4:6], GONE], second)
    assert np.array_equal(samples_of(servers.heard(characters=30)), WHOLE)
    assert servers.asked == [[], [8, 9, 10, 11], [8, 9, 10, 11], [8, 9, 10, 11]]
    assert servers.starts == [None, 10, 10, 10]


def test_of_a_long_text_no_more_is_kept_than_of_its_last_segment():
    heard = HeardSpeech()
    for number in range(1, 200):
        for chunk in with_tokens(chunks(6_000)):
            heard.new(chunk)
            if chunk.finish_reason:
                heard.end_segment()
        assert heard.samples == number * len(WHOLE)
    assert heard.tokens == []
    assert sum(len(value) for value in vars(heard).values() if hasattr(value, "__len__")) == 0


def test_refusal_ends_what_has_not_begun_and_is_waited_for_after_a_loss():
    with pytest.raises(UnavailableError, match="the limit"):
        Servers([FULL], chunks(6_000)).heard()
    servers = Servers([*chunks(6_000)[:2], GONE], [FULL], [FULL], chunks(6_000))
    assert np.array_equal(samples_of(servers.heard()), WHOLE)


def test_server_is_looked_for_while_a_balancer_still_asks_the_lost_one():
    servers = Servers([*chunks(6_000)[:2], GONE], [GONE], [GONE], [GONE], chunks(6_000))
    assert np.array_equal(samples_of(servers.heard()), WHOLE)
    assert servers.counted == ["resumed"]


def test_other_errors_end_it():
    with pytest.raises(RefusedError):
        Servers([*chunks(6_000)[:2], RefusedError("no")], chunks(6_000)).heard()
    with pytest.raises(RefusedError):
        Servers([GONE], [RefusedError("no")]).heard()


def test_refusal_to_go_on_ends_it_as_the_loss_does():
    with pytest.raises(LostError, match="Socket closed"):
        Servers([*chunks(6_000)[:2], GONE], [RefusedError("unexpected input 'spoken_tokens'")]).heard()


REFUSED = "a text that servers refuse"


class Texts:
    """Servers of texts in pieces: each dies after so many chunks, which come when the text has ended."""

    def __init__(self, *chunks_until_death: int | None) -> None:
        self.deaths = list(chunks_until_death)
        self.said: list[list[str]] = []
        self.asked: list[list[int]] = []
        self.open = 0

    @asynccontextmanager
    async def text(self, spoken):
        self.asked.append(list(spoken))
        self.open += 1
        try:
            yield Text(self.deaths.pop(0), self)
        finally:
            self.open -= 1


class Text:
    def __init__(self, death: int | None, servers: Texts) -> None:
        self.death, self.said, self.ended = death, [], asyncio.Event()
        servers.said.append(self.said)

    async def push(self, text: str) -> None:
        if self.death == 0:
            raise GONE
        if text == REFUSED:
            raise RefusedError("no")
        self.said.append(text)

    async def flush(self) -> None:
        await self.push("<flush>")

    async def end(self) -> None:
        await self.push("<end>")
        self.ended.set()

    async def __aiter__(self):
        await self.ended.wait()
        for number, chunk in enumerate(with_tokens(chunks(6_000))):
            if number == self.death:
                raise GONE
            yield chunk


@pytest.mark.parametrize("deaths", [(None,), (0, None), (4, None), (4, 0, None), (3, 9, None), (0, 0, None)])
def test_text_in_pieces_is_said_again_to_the_server_that_goes_on(deaths):
    async def work():
        servers, counted = Texts(*deaths), []
        async with UnbrokenText(servers.text, counted.append) as speech:
            for piece in ("One. ", "Two. "):
                await speech.push(piece)
            await speech.flush()
            await speech.push("Three.")
            await speech.end()
            heard = [chunk async for chunk in speech]
        return servers, counted, heard

    servers, counted, heard = asyncio.run(asyncio.wait_for(work(), 30))
    assert "".join(servers.said[-1]) == "One. Two. <flush>Three.<end>"
    assert np.array_equal(samples_of(heard), WHOLE)
    assert facts(heard) == ENDINGS
    assert counted == ["resumed"] * sum(death is not None and death > 0 for death in deaths)
    most = accumulate((death or 0 for death in deaths[:-1]), max, initial=0)
    assert servers.asked == [list(range(2 * heard)) for heard in most]
    assert servers.open == 0


def test_chunks_that_a_lost_server_had_still_made_are_not_taken_for_the_repetition():
    """The listener is behind, and whoever adds text is the first to see that the server is gone."""

    class Behind(Text):
        async def push(self, text: str) -> None:
            if self.said and self.death is not None:
                raise GONE
            self.said.append(text)

        async def __aiter__(self):
            for number, chunk in enumerate(chunks(6_000)):
                if number == self.death:
                    raise GONE
                yield chunk

    class Servers(Texts):
        @asynccontextmanager
        async def text(self, spoken):
            self.asked.append(list(spoken))
            yield Behind(self.deaths.pop(0), self)

    async def work():
        heard, counted = [], []
        async with UnbrokenText(Servers(9, None).text, counted.append) as speech:
            await speech.push("One. ")
            async for chunk in speech:
                heard.append(chunk)
                if len(heard) == 2:
                    await speech.push("Two.")
        return heard, counted

    heard, counted = asyncio.run(asyncio.wait_for(work(), 30))
    assert np.array_equal(samples_of(heard), WHOLE)
    assert counted == ["resumed"]


def test_text_in_pieces_that_finds_no_server_ends():
    async def work():
        async with UnbrokenText(Texts(0, 0, 0, None).text, lambda _: None) as speech:
            await speech.push("One.")

    with pytest.raises(LostError):
        asyncio.run(asyncio.wait_for(work(), 30))


def test_pieces_are_said_again_in_one_message():
    async def work():
        servers = Texts(4, None)
        async with UnbrokenText(servers.text, lambda _: None) as speech:
            for _ in range(50):
                await speech.push("word ")
            await speech.flush()
            await speech.flush()
            await speech.push("end")
            await speech.end()
            assert np.array_equal(samples_of([chunk async for chunk in speech]), WHOLE)
        return servers.said[-1]

    said = asyncio.run(asyncio.wait_for(work(), 30))
    assert said == ["word " * 50, "<flush>", "<flush>", "end", "<end>"]


def test_refused_text_is_not_said_again():
    async def work():
        servers = Texts(4, None)
        async with UnbrokenText(servers.text, lambda _: None) as speech:
            await speech.push("One. ")
            with pytest.raises(RefusedError):
                await speech.push(REFUSED)
            await speech.end()
            assert np.array_equal(samples_of([chunk async for chunk in speech]), WHOLE)
        return servers.said

    assert asyncio.run(asyncio.wait_for(work(), 30)) == [["One. ", "<end>"]] * 2


def test_text_in_pieces_whose_going_on_is_refused_ends_as_the_loss_does():
    class Older(Texts):
        def text(self, spoken):
            if spoken:
                raise RefusedError("unexpected input 'spoken_tokens'")
            return super().text(spoken)

    async def work():
        async with UnbrokenText(Older(4).text, lambda _: None) as speech:
            await speech.push("One.")
            await speech.end()
            with pytest.raises(LostError, match="Socket closed"):
                [chunk async for chunk in speech]
            with pytest.raises(LostError, match="Socket closed"):
                await speech.flush()

    asyncio.run(asyncio.wait_for(work(), 30))


def test_stream_that_ends_because_it_is_left_is_not_the_end():
    """A server has no room for more text; its stream ends when another server is asked to go on."""

    class Left(Text):
        def __init__(self, death: int | None, servers: Texts) -> None:
            super().__init__(death, servers)
            self.left = asyncio.Event()

        async def push(self, text: str) -> None:
            if self.said and self.death is not None:
                raise FULL
            self.said.append(text)

        async def __aiter__(self):
            for number, chunk in enumerate(with_tokens(chunks(6_000))):
                if number == self.death:
                    await self.left.wait()
                    return
                yield chunk

    class Servers(Texts):
        @asynccontextmanager
        async def text(self, spoken):
            speech = Left(self.deaths.pop(0), self)
            yield speech
            speech.left.set()
            for _ in range(10):
                await asyncio.sleep(0)  # The listener sees the end before another server is opened.

    async def work():
        heard, counted, has_begun = [], [], asyncio.Event()

        async def listen() -> None:
            async for chunk in speech:
                heard.append(chunk)
                has_begun.set()

        async with UnbrokenText(Servers(2, None).text, counted.append) as speech:
            await speech.push("One. ")
            listening = asyncio.create_task(listen())
            await has_begun.wait()
            await speech.push("Two.")
            await listening
        return heard, counted

    heard, counted = asyncio.run(asyncio.wait_for(work(), 30))
    assert np.array_equal(samples_of(heard), WHOLE)
    assert counted == ["resumed"]
