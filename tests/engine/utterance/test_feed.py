"""Segments of a text are laid out while those before them are spoken, and an answer may begin amid a text."""

from __future__ import annotations

import asyncio
from threading import Event

import numpy as np
import pytest

from coded_stages import CodedStages
from cosyvoice_runtime.engine.utterance.feed import AHEAD, FIRST, SegmentFeed
from cosyvoice_runtime.engine.utterance.hop import HopPolicy
from cosyvoice_runtime.engine.utterance.layout import LaidSegment, SegmentLayout
from cosyvoice_runtime.engine.utterance.request import AudioChunk, SpeechRequest, Utterance
from cosyvoice_runtime.engine.utterance.utterance import TokenGroup, speak
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.lm.text_segment import SegmentQueue
from cosyvoice_runtime.text import TextFrontEnd, TextTokenizer
from fake_voices import make_voice

RATE = 24_000
HOP = HopPolicy(25, 3, 10, 25, 100, 25)
PARAGRAPHS = [f"This is paragraph {number} of the text." for number in range(1, 13)]
TEXT = "\n\n".join(PARAGRAPHS)
ENDS = [len("\n\n".join(PARAGRAPHS[:count])) for count in range(1, 13)]


@pytest.fixture(scope="module")
def tokenizer(tiny_checkpoint) -> TextTokenizer:
    return TextTokenizer(tiny_checkpoint / "CosyVoice-BlankEN")


class SeededStages(CodedStages):
    """Says as many tokens as the seed of a segment tells, each of which is the seed."""

    def generate(self, prompt, sampling, utterance_id, first_tokens, pieces, with_rows=False):
        self.groups = [
            *[TokenGroup([sampling.seed % 1000])] * (20 + sampling.seed % 7),
            TokenGroup([], FinishReason.STOP),
        ]
        return super().generate(prompt, sampling, utterance_id, first_tokens, pieces, with_rows)


def request(text: str = TEXT, **options) -> SpeechRequest:
    return SpeechRequest(text, make_voice(1), seed=1, **options)


class Answer:
    """The chunks of a request, the prompts that were laid out before each, and the stages."""

    def __init__(self, tokenizer: TextTokenizer, asked: SpeechRequest) -> None:
        self.chunks: list[AudioChunk] = []
        self.ahead: list[int] = []
        self.stages = SeededStages([])
        self._laid = 0
        layout = SegmentLayout(asked, TextFrontEnd(tokenizer), tokenizer, HOP.flow_voice)
        feed = SegmentFeed(map(self._count, layout.segments()), len(asked.text))
        self.start_character = layout.start_character
        asyncio.run(self._hear(feed, Utterance.of(asked, layout.sound, layout.first_segment)))

    def _count(self, segment: LaidSegment) -> LaidSegment:
        self._laid += 1
        return segment

    async def _hear(self, feed: SegmentFeed, utterance: Utterance) -> None:
        queue = SegmentQueue()
        feed.begin(queue)
        async for chunk in feed.chunks(speak(utterance, queue, self.stages, HOP, RATE, lambda: 0.0)):
            self.chunks.append(chunk)
            self.ahead.append(self._laid - chunk.segment + utterance.first_segment)

    @property
    def samples(self) -> np.ndarray:
        return np.concatenate([chunk.samples for chunk in self.chunks])

    @property
    def ends(self) -> list[tuple[int, int | None]]:
        return [(chunk.segment, chunk.spoken_characters) for chunk in self.chunks if chunk.finish_reason]


def test_every_segment_tells_the_characters_that_are_spoken_with_it(tokenizer):
    assert Answer(tokenizer, request()).ends == list(enumerate(ENDS))
    assert Answer(tokenizer, request("One.\n\nTwo. ... \n")).ends == [(0, 4), (1, 16)]
    assert Answer(tokenizer, request("One.\n\nTwo.[pause:1s]")).ends == [(0, 4), (1, 20)]


def test_few_segments_are_laid_out_ahead_of_what_is_spoken(tokenizer):
    answer = Answer(tokenizer, request())
    assert FIRST <= max(answer.ahead) <= AHEAD + 1
    assert len(answer.ends) == len(PARAGRAPHS) > 2 * AHEAD


def test_last_segment_has_all_characters_however_late_it_is_known_to_be_the_last(tokenizer):
    asked = request("\n\n".join(PARAGRAPHS[:4]) + " ... \n")
    layout = SegmentLayout(asked, TextFrontEnd(tokenizer), tokenizer, HOP.flow_voice)

    def late():
        for segment in layout.segments():
            Event().wait(0.1)
            yield segment
        Event().wait(0.1)

    async def hear() -> None:
        feed, queue = SegmentFeed(late(), len(asked.text)), SegmentQueue()
        feed.begin(queue)
        utterance = Utterance.of(asked, layout.sound)
        async for chunk in feed.chunks(speak(utterance, queue, SeededStages([]), HOP, RATE, lambda: 0.0)):
            if chunk.finish_reason is not None:
                ends.append(chunk.spoken_characters)

    ends: list[int | None] = []
    asyncio.run(hear())
    assert ends == [*ENDS[:3], len(asked.text)]


def test_what_a_later_segment_can_not_have_ends_the_answer(tokenizer):
    layout = SegmentLayout(request(), TextFrontEnd(tokenizer), tokenizer, HOP.flow_voice)
    laid = list(layout.segments())

    def failing():
        yield from laid[:6]
        raise InvalidInput("target_text", "the seventh", "other words")

    async def hear() -> None:
        feed, queue = SegmentFeed(failing()), SegmentQueue()
        feed.begin(queue)
        utterance = Utterance.of(request(), layout.sound)
        spoken = feed.chunks(speak(utterance, queue, SeededStages([]), HOP, RATE, lambda: 0.0))
        async for chunk in spoken:
            ends.append(chunk.segment)

    ends: list[int] = []
    with pytest.raises(InvalidInput, match="the seventh"):
        asyncio.run(hear())
    assert set(ends) <= set(range(6))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<speak>One.<p>Two.</p><p>Three.</p><voice name='who'>Four.</voice></speak>", "^voice: 'who'"),
        (
            "<speak>One.<p>Two.</p><p>Three.</p><prosody rate='2'>Four.</prosody></speak>",
            "a rate that times",
        ),
    ],
)
def test_what_a_document_can_not_have_is_refused_before_any_of_it_is_spoken(tokenizer, text, message):
    with pytest.raises(InvalidInput, match=message):
        SegmentLayout(request(text, speed=1.5), TextFrontEnd(tokenizer), tokenizer, HOP.flow_voice).segments()


@pytest.mark.parametrize("count", range(1, 2 * AHEAD + 2))
@pytest.mark.parametrize("silence", ["", "[pause:1s]"])
def test_texts_of_any_number_of_segments_end(tokenizer, count, silence):
    text = "\n\n".join(PARAGRAPHS[:count]) + silence
    answer = Answer(tokenizer, request(text))
    assert [end for _, end in answer.ends] == [*ENDS[: count - 1], len(text)]
    assert answer.chunks[-1].is_pause == bool(silence)


def test_paragraphs_have_a_silence_between_them(tokenizer):
    for pause_s in (0.5, 1.25, 0.0):
        asked = request(**({} if pause_s == 0.5 else {"paragraph_pause_s": pause_s}))
        answer = Answer(tokenizer, asked)
        pauses = [len(chunk.samples) for chunk in answer.chunks if chunk.is_pause]
        assert pauses == [round(pause_s * RATE)] * 11 * (pause_s > 0)
        assert len(answer.ends) == 12


@pytest.mark.parametrize("field", ["paragraph_pause_s", "sentence_pause_s"])
@pytest.mark.parametrize("pause_s", [-0.1, 10.1, float("nan")])
def test_silences_have_limits(field, pause_s):
    with pytest.raises(InvalidInput, match=rf"^{field}: .*0 to 10 seconds"):
        request(**{field: pause_s})


@pytest.mark.parametrize("first", [1, 5, 11])
@pytest.mark.parametrize("within", ["begin", "middle", "end"])
def test_an_answer_from_a_character_on_is_the_end_of_the_whole(tokenizer, first, within):
    """A segment has the blank lines before it, so that the end that is told of one begins the next."""
    begin, end = ENDS[first - 1], ENDS[first]
    start = {"begin": begin, "middle": (begin + end) // 2, "end": end - 1}[within]
    whole, later = Answer(tokenizer, request()), Answer(tokenizer, request(start_character=start))
    before = [chunk.samples for chunk in whole.chunks if chunk.segment < first]
    assert np.array_equal(later.samples, whole.samples[sum(map(len, before)) :])
    assert later.ends == whole.ends[first:]
    assert later.start_character == begin
    assert all(
        seed.noise_seed == other.noise_seed
        for seed, other in zip(
            later.stages.sounds, whole.stages.sounds[-len(later.stages.sounds) :], strict=True
        )
    )


def test_an_answer_from_the_first_segment_on_is_the_whole(tokenizer):
    whole, again = Answer(tokenizer, request()), Answer(tokenizer, request(start_character=3))
    assert np.array_equal(whole.samples, again.samples)
    assert again.start_character == 0


@pytest.mark.parametrize("text", [TEXT + " ...\n\n", TEXT + "[pause:1s]", TEXT])
def test_what_follows_the_last_words_begins_with_their_segment(tokenizer, text):
    answer = Answer(tokenizer, request(text, start_character=len(text) - 1))
    assert answer.ends == [(11, len(text))]
    assert answer.start_character == ENDS[10]


@pytest.mark.parametrize("start", [len(TEXT), len(TEXT) + 7])
def test_a_start_behind_the_text_is_refused(tokenizer, start):
    message = f"start_character: {start} is not accepted; less than the {len(TEXT)} characters of the text"
    with pytest.raises(InvalidInput) as caught:
        Answer(tokenizer, request(start_character=start))
    assert str(caught.value) == message


@pytest.mark.parametrize("start", [-1, 1.5])
def test_a_start_that_is_no_place_is_refused(start):
    with pytest.raises(InvalidInput, match=r"^start_character: "):
        request(start_character=start)


def test_more_segments_than_the_text_has_can_not_have_been_begun(tokenizer):
    def laid(text: str):
        return SegmentLayout(request(text), TextFrontEnd(tokenizer), tokenizer, HOP.flow_voice).segments()

    SegmentFeed(laid(TEXT), begun=12)
    with pytest.raises(InvalidInput, match="spoken_tokens: '13 segments' is not accepted; the text has 12"):
        SegmentFeed(laid(TEXT), begun=13)
