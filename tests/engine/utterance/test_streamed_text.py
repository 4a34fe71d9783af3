"""Text that arrives while it is spoken: what is said when, and that only the text decides how it sounds."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pytest

from coded_stages import TOKEN_SAMPLES, CodedStages
from cosyvoice_runtime.checkpoint import load_config
from cosyvoice_runtime.engine.utterance import streamed_text
from cosyvoice_runtime.engine.utterance.hop import HopPolicy
from cosyvoice_runtime.engine.utterance.incoming_text import MAX_BUFFERED_BYTES, IncomingText, TextMark
from cosyvoice_runtime.engine.utterance.layout import SegmentLayout
from cosyvoice_runtime.engine.utterance.request import Utterance, sound_of
from cosyvoice_runtime.engine.utterance.streamed_text import TextFeeder, speak_arriving
from cosyvoice_runtime.engine.utterance.utterance import speak
from cosyvoice_runtime.errors import ClientGoneError, CosyVoiceError, InvalidInput, WithdrawnError, status_of
from cosyvoice_runtime.families import COSYVOICE3
from cosyvoice_runtime.lm import FinishReason, Prompt
from cosyvoice_runtime.lm.text_segment import SegmentQueue, Silence
from cosyvoice_runtime.local import SpeechRequest
from cosyvoice_runtime.text import TextFrontEnd, TextTokenizer
from cosyvoice_runtime.voice import Voice

FLUSH, END = TextMark.FLUSH, TextMark.END
PROMPT = np.arange(30, dtype=np.int32)
VOICE = Voice(
    "0" * 64, "A few words.", PROMPT, np.zeros((60, 80), np.float32), np.zeros(192, np.float32), "checkpoint"
)
REQUEST = SpeechRequest("", VOICE, seed=1)
PLAIN = SpeechRequest("", VOICE, seed=1, cross_lingual=True)
HOP = HopPolicy(25, 3, 10, 25, 100, 25)
SENTENCES = [
    "Where did Anna put the tickets for the train? ",
    "She has no idea. ",
    "Nobody does; it is late.",
]


@pytest.fixture(scope="module")
def tokenizer(tiny_checkpoint: Path) -> TextTokenizer:
    return TextTokenizer(tiny_checkpoint / "CosyVoice-BlankEN")


@pytest.fixture(scope="module")
def blocks(tiny_checkpoint: Path):
    return load_config(tiny_checkpoint).speech_lm


@pytest.fixture
def feed(tokenizer, blocks):
    """``feed(source, request, interleaved)`` makes a feeder."""

    def feed(source, request: SpeechRequest = PLAIN, interleaved: bool = True) -> TextFeeder:
        front_end = TextFrontEnd(tokenizer)
        lm = blocks if interleaved else None
        layout = SegmentLayout(request, front_end, tokenizer, HOP.flow_voice)
        return TextFeeder(source, layout, HOP, Segments(), lm)

    return feed


class Segments(SegmentQueue):
    """A queue that keeps what was put into it."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[tuple[list[int], bool]] = []

    def begin(self, prompt: Prompt, in_pieces: bool = False, *how, **named) -> None:
        super().begin(prompt, in_pieces, *how, **named)
        self.texts.append(([*prompt.text], in_pieces))

    def add(self, ids) -> None:
        super().add(ids)
        self.texts[-1][0].extend(ids)


async def put(source: IncomingText, *items: str | TextMark) -> None:
    """Each when what came before it has been read."""
    for item in items:
        source.push(item) if isinstance(item, str) else source.mark(item)
        for _ in range(3):
            await asyncio.sleep(0)


async def segments(feeder: TextFeeder) -> list[tuple[int, int, list[int] | None]]:
    """Of all: ids of text, characters, and the ids that come in pieces."""
    await feeder.run()
    texts = feeder.sink.texts
    return [
        (len(text), characters, text if in_pieces else None)
        for (text, in_pieces), characters in zip(texts, feeder.characters, strict=True)
    ]


def planned(feed, *items: str | TextMark, **options) -> list[tuple[int, int, list[int] | None]]:
    async def run():
        source = IncomingText()
        feeder = feed(source, **options)
        planning = asyncio.create_task(segments(feeder))
        await put(source, *items, END)
        return await planning

    return asyncio.run(run())


def test_clauses_are_segments_of_their_own_where_the_speech_lm_takes_whole_texts(feed, tokenizer):
    found = planned(feed, "Yes! Of course", ". Why", interleaved=False)
    assert [(characters, pieces) for _, characters, pieces in found] == [(5, None), (16, None), (19, None)]
    assert [length for length, _, _ in found] == [
        tokenizer.count(text) for text in ("Yes!", " Of course.", " Why.")
    ]


def test_clauses_flow_into_one_segment_where_text_comes_between_speech(feed, tokenizer):
    text = "".join(SENTENCES)
    [(length, characters, pieces)] = planned(feed, *SENTENCES)
    assert (length, characters) == (len(pieces), len(text))
    assert tokenizer.decode(pieces) == text


@pytest.mark.parametrize("interleaved", [True, False])
def test_a_pause_or_another_pace_ends_a_segment(feed, interleaved):
    async def run():
        feeder = feed(IncomingText(), interleaved=interleaved)
        planning = asyncio.create_task(segments(feeder))
        await put(
            feeder.source, "One cat. [pause:1s]Two. <speed ratio='1.5'/>And", " three more.[pause:2s]", END
        )
        await planning
        found = []
        while (segment := await feeder.sink.next()) is not None:
            sound = None if isinstance(segment, Silence) else segment.sound
            found.append(segment.seconds if isinstance(segment, Silence) else sound and sound.speed)
        return found

    assert asyncio.run(run()) == [None, 1.0, None, 1.5, 2.0]


def test_flush_begins_a_new_segment(feed):
    found = planned(feed, SENTENCES[0] + "Well", FLUSH, FLUSH, "And so it goes on and on and on")
    assert [characters for _, characters, _ in found] == [len(SENTENCES[0]) + 4, len(SENTENCES[0]) + 35]


@pytest.mark.parametrize("request_", [PLAIN, REQUEST], ids=["no prompt", "prompt"])
def test_clause_too_short_for_the_first_chunk_is_a_segment_of_its_own(feed, tokenizer, request_):
    first, *_ = planned(feed, "No. " + SENTENCES[0], request=request_)
    assert first[:2] == (tokenizer.count("No."), 4)


def test_instruction_brings_no_speech_so_a_short_clause_after_it_stays_a_segment_of_its_own(
    tokenizer, blocks
):
    """It is fed before the blocks, so its length does not count for the first chunk."""

    def planned_after(instruction: str) -> list[tuple[int, int, list[int] | None]]:
        request = dataclasses.replace(REQUEST, instruct_text=instruction)
        front_end = TextFrontEnd(tokenizer, family=COSYVOICE3)

        def feed(source, request: SpeechRequest = request) -> TextFeeder:
            layout = SegmentLayout(request, front_end, tokenizer, HOP.flow_voice)
            return TextFeeder(source, layout, HOP, Segments(), blocks)

        return planned(feed, "No. " + SENTENCES[0])

    short, *_ = planned_after("Speak.")
    assert short[:2] == (tokenizer.count("No."), 4)
    assert planned_after("Please speak slowly, in a very low voice, and take your time.")[0] == short


def test_segment_that_grows_too_long_ends_at_a_clause_and_the_next_one_begins(feed):
    found = planned(feed, *SENTENCES * 5)
    assert len(found) > 1
    assert all(length <= 80 for length, _, _ in found)
    assert found[-1][1] == len("".join(SENTENCES * 5))
    assert found == planned(feed, *"".join(SENTENCES * 5))


def test_segment_takes_a_clause_that_just_fits(feed, monkeypatch):
    [(length, _, _)] = planned(feed, *SENTENCES[:2])
    for longest, count in ((length, 1), (length - 1, 2)):
        monkeypatch.setattr(streamed_text, "LONGEST_SEGMENT", longest)
        assert len(planned(feed, *SENTENCES[:2])) == count


def spoken(stages: CodedStages, feeder: TextFeeder, work=None) -> list:
    """All chunks; ``work(chunks)`` is told of each."""

    async def run() -> list:
        chunks = []
        utterance = Utterance.of(PLAIN, sound_of(HOP.flow_voice(PLAIN.voice), 1.0))
        chunks_of_it = speak(utterance, feeder.sink, stages, HOP, 24_000, lambda: 0.0)
        spoken = speak_arriving(feeder, chunks_of_it)
        async with aclosing(spoken):
            async for chunk in spoken:
                chunks.append(chunk)
                if work is not None:
                    work(chunks)
        return chunks

    return run()


class Arriving:
    """A service in small: coded stages, a feeder and the text that arrives."""

    def __init__(self, feed, **options) -> None:
        self.source = IncomingText(**options)
        self.stages = CodedStages([])
        self.stages.per_text = 15
        self.feeder = feed(self.source)
        self.chunks: list = []
        self.news = asyncio.Event()
        self.speaking = asyncio.create_task(spoken(self.stages, self.feeder, self._heard))

    def _heard(self, chunks) -> None:
        self.chunks = chunks
        self.news.set()

    @property
    def samples(self) -> int:
        return sum(len(chunk.samples) for chunk in self.chunks)

    async def until_heard(self) -> None:
        self.news.clear()
        await asyncio.wait_for(self.news.wait(), 30)


def test_first_audio_comes_before_the_second_clause(feed):
    async def run():
        arriving = Arriving(feed)
        arriving.source.push(SENTENCES[0] + "S")
        await arriving.until_heard()
        assert arriving.chunks[0].finish_reason is None
        await put(arriving.source, SENTENCES[1], END)
        return await arriving.speaking

    chunks = asyncio.run(run())
    assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == [FinishReason.STOP]
    assert chunks[-1].spoken_characters == len(SENTENCES[0] + "S" + SENTENCES[1])
    assert {chunk.spoken_characters for chunk in chunks[:-1]} == {None}


def test_flushed_text_is_spoken_to_its_end_and_more_may_follow(feed):
    async def run():
        arriving = Arriving(feed)
        await put(arriving.source, SENTENCES[0], FLUSH)
        while not (arriving.chunks and arriving.chunks[-1].finish_reason):
            await arriving.until_heard()
        await put(arriving.source, SENTENCES[1], END)
        chunks = await arriving.speaking
        return arriving.stages, chunks

    stages, chunks = asyncio.run(run())
    ends = [(chunk.segment, chunk.spoken_characters) for chunk in chunks if chunk.finish_reason]
    assert ends == [(0, len(SENTENCES[0])), (1, len(SENTENCES[0] + SENTENCES[1]))]
    assert not stages.stopped
    assert not stages.dropped
    said = np.concatenate([chunk.samples for chunk in chunks])[::TOKEN_SAMPLES].astype(int).tolist()
    assert said == stages.said


def test_utterance_without_anything_to_speak_ends_without_audio(feed):
    async def run():
        arriving = Arriving(feed)
        await put(arriving.source, "... ", FLUSH, END)
        return await arriving.speaking

    assert asyncio.run(run()) == []


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (lambda arriving: arriving.source.cancel(), ClientGoneError),
        (lambda arriving: setattr(arriving.stages, "wave_error", CosyVoiceError("lost")), CosyVoiceError),
        (lambda arriving: arriving.speaking.cancel(), asyncio.CancelledError),
    ],
)
def test_whatever_ends_it_leaves_nothing_in_any_stage(feed, end, error):
    async def run():
        arriving = Arriving(feed)
        arriving.source.push(SENTENCES[0] + "S")
        await arriving.until_heard()
        end(arriving)
        if arriving.stages.wave_error is not None:
            arriving.source.push(SENTENCES[1] * 10)
        with pytest.raises(error):
            await arriving.speaking
        return arriving.stages, len(asyncio.all_tasks())

    stages, tasks = asyncio.run(run())
    assert len(stages.stopped) == len(stages.dropped) == 1
    assert tasks == 1


def test_text_that_stays_away_ends_the_utterance(feed):
    async def run():
        arriving = Arriving(feed, idle_s=1.0)
        arriving.source.push(SENTENCES[0] + "S")
        with pytest.raises(WithdrawnError, match="no text came for 1 s, and no end of it") as caught:
            await arriving.speaking
        return arriving, caught.value

    arriving, error = asyncio.run(run())
    assert status_of(error) == "CANCELLED"
    assert arriving.samples
    assert len(arriving.stages.stopped) == 1


def test_text_is_idle_only_while_nothing_is_spoken():
    clock = itertools.count()

    async def run():
        source = IncomingText(idle_s=4.5, now=clock.__next__)
        for _ in range(10):
            source.spoke()
            next(clock)
        source.push("x")
        return await source.next()

    assert asyncio.run(run()) == "x"


def test_limits_of_the_text_are_named():
    async def run():
        source = IncomingText(max_characters=10)
        source.push("123456789")
        with pytest.raises(InvalidInput, match="target_text: '12 characters' is not accepted; at most 10"):
            source.push("abc")
        with pytest.raises(InvalidInput, match="lone surrogate"):
            source.push("\ud800")
        source.mark(END)
        for late in (lambda: source.push("x"), lambda: source.mark(FLUSH)):
            with pytest.raises(InvalidInput, match="the text of this utterance is complete"):
                late()
        many = IncomingText(max_characters=10**6)
        many.push("é" * (MAX_BUFFERED_BYTES // 2))
        with pytest.raises(InvalidInput, match=r"bytes' is not accepted; at most 262144 of them may wait"):
            many.push("x")
        await many.next()
        many.push("x")
        return [await source.next(), await source.next()]

    assert asyncio.run(run()) == ["123456789", END]


def test_tags_after_the_last_words_count_when_all_is_spoken(feed):
    text = "<speak>Hello. <prosody rate='slow'>How are you?</prosody> <break time='1s'/></speak>"
    for interleaved in (True, False):
        found = planned(feed, *text, interleaved=interleaved)
        assert [characters for _, characters, _ in found] == [13, len(text)]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("<speak>Hi. <voice name='nobody'>Hello.</voice></speak>", "voice: 'nobody'"),
        ("<speak>Hi. How are you? <break", "<break"),
        ("<speak>Hi. How are <say-as interpret-as='digits'>12", "<say-as>"),
        ("<speak><prosody rate='200%'>Hi.</prosody></speak>", "target_text: 'rate 2' .* speed 1.5"),
    ],
)
def test_what_arriving_text_can_not_ask_for_ends_it_with_its_name(feed, text, named):
    request = dataclasses.replace(PLAIN, speed=1.5)
    with pytest.raises(InvalidInput, match=named):
        planned(feed, *text, request=request)


def test_a_rate_and_a_speed_of_float32_may_reach_the_limit(feed):
    request = dataclasses.replace(PLAIN, speed=float(np.float32(1.6)))
    assert planned(feed, "<speak><prosody rate='1.25'>Hi.</prosody></speak>", request=request)
