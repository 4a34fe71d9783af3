"""An utterance driven through stages that write token ids as samples."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import time
from contextlib import aclosing

import numpy as np
import pytest

from coded_stages import TOKEN_SAMPLES, CodedStages
from cosyvoice_runtime.engine.utterance.feed import SegmentFeed
from cosyvoice_runtime.engine.utterance.hop import HopPolicy
from cosyvoice_runtime.engine.utterance.layout import SegmentLayout
from cosyvoice_runtime.engine.utterance.request import (
    AudioChunk,
    SpeechRequest,
    Utterance,
)
from cosyvoice_runtime.engine.utterance.utterance import (
    OFFLINE_CUSHION_S,
    Playback,
    SegmentSpeech,
    TokenGroup,
    WaveSettings,
    speak,
)
from cosyvoice_runtime.errors import CosyVoiceError, StageError
from cosyvoice_runtime.lm.generation import FinishReason
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.text_segment import SegmentQueue, TextSegment
from cosyvoice_runtime.text import TextFrontEnd, TextTokenizer
from cosyvoice_runtime.voice import Voice

SAMPLE_RATE = 24_000
HOP = HopPolicy(25, 3, 10, 25, 100, 25)
CUT = HopPolicy(25, 3, 10, 25, 100, 25, most_cut=1.0)
Groups = list[TokenGroup | Exception]


@pytest.fixture(scope="module")
def tokenizer(tiny_checkpoint) -> TextTokenizer:
    return TextTokenizer(tiny_checkpoint / "CosyVoice-BlankEN")


def request(prompt_tokens: int = 15, **options) -> SpeechRequest:
    voice = Voice(
        "0" * 64,
        "some words",
        np.arange(prompt_tokens, dtype=np.int32),
        np.zeros((2 * prompt_tokens, 80), np.float32),
        np.zeros(192, np.float32),
        "checkpoint",
    )
    return SpeechRequest(**({"text": "Hello there.", "voice": voice, "seed": 1} | options))


class Heard:
    """A listener: keeps chunks, lets held stages go on after the first one, and may leave early."""

    def __init__(self, leaves_after: int | None = None) -> None:
        self.chunks: list[AudioChunk] = []
        self.leaves_after = leaves_after

    @property
    def tokens(self) -> list[int]:
        return np.concatenate([chunk.samples for chunk in self.chunks])[::TOKEN_SAMPLES].astype(int).tolist()

    @property
    def reasons(self) -> list[FinishReason | None]:
        return [chunk.finish_reason for chunk in self.chunks]

    async def hear(self, asked: SpeechRequest, stages: CodedStages, tokenizer, hop: HopPolicy) -> None:
        clock = itertools.count()  # a second passes at every look: the client is always about to run dry
        playback = Playback(lambda: float(next(clock)))
        layout = SegmentLayout(asked, TextFrontEnd(tokenizer), tokenizer, hop.flow_voice)
        segments = SegmentQueue()
        feed = SegmentFeed(layout.segments(), len(asked.text))
        feed.begin(segments)
        utterance = Utterance.of(asked, layout.sound)
        spoken = feed.chunks(speak(utterance, segments, stages, hop, SAMPLE_RATE, lambda: playback.cushion_s))
        async with aclosing(spoken) as chunks:
            async for chunk in chunks:
                self.chunks.append(chunk)
                playback.sent(len(chunk.samples) / SAMPLE_RATE)
                stages.hold.set()
                if len(self.chunks) == self.leaves_after:
                    return


def hear(
    groups: Groups, tokenizer, asked: SpeechRequest | None = None, hop: HopPolicy = HOP, **options
) -> tuple[CodedStages, Heard]:
    """Speak a request; options are attributes of the stages, ``held`` and ``leaves_after``."""
    heard = Heard(options.pop("leaves_after", None))
    stages = CodedStages(groups)

    async def run() -> None:
        if options.pop("held", False):
            stages.hold.clear()
        for name, value in options.items():
            setattr(stages, name, value)
        await heard.hear(asked or request(), stages, tokenizer, hop)

    try:
        asyncio.run(run())
    except Exception as error:
        error.stages = stages
        raise
    return stages, heard


def singles(count: int, reason: FinishReason = FinishReason.STOP) -> Groups:
    return [*(TokenGroup([token]) for token in range(count)), TokenGroup([], reason)]


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("count", [0, 1, 12, 13, 14, 200])
def test_every_token_is_heard_once_in_order(tokenizer, count, streaming):
    stages, heard = hear(singles(count), tokenizer, request(streaming=streaming))
    assert heard.tokens == list(range(count))
    assert heard.reasons == [None] * (len(heard.reasons) - 1) + [FinishReason.STOP]
    assert [last for _, last in stages.calls] == [False] * (len(stages.calls) - 1) + [True]
    assert (stages.stopped, stages.dropped) == ([], [])


def test_whoever_waits_for_all_of_it_is_served_in_long_chunks_and_without_hurry(tokenizer):
    groups = [TokenGroup(list(range(250)), FinishReason.STOP)]
    stages, _ = hear(groups, tokenizer, request(streaming=False))
    assert set(stages.cushions) == {OFFLINE_CUSHION_S}
    assert [len(tokens) for tokens, _ in stages.calls] == [13, 100, 100, 37]


def test_whoever_is_about_to_run_dry_never_waits_for_more_than_a_block(tokenizer):
    stages, _ = hear([TokenGroup(list(range(250)), FinishReason.STOP)], tokenizer)
    assert [len(tokens) for tokens, _ in stages.calls] == [13, *9 * [25], 12]


def test_every_call_brings_the_same_voice_seed_and_speed(tokenizer):
    groups = [TokenGroup(list(range(13))), *singles(100)]
    stages, _ = hear(groups, tokenizer, request(speed=1.5), held=True)
    assert len(stages.sounds) > 1
    assert set(stages.sounds) == {stages.sounds[0]}
    assert (stages.sounds[0].speed, stages.sounds[0].voice_key) == (1.5, request().voice.prompt_key)


def test_first_chunk_goes_out_while_the_lm_is_still_speaking(tokenizer):
    groups = [TokenGroup(list(range(13))), TokenGroup([13], FinishReason.LENGTH)]
    stages, heard = hear(groups, tokenizer, held=True)
    assert stages.first_tokens == [13]
    assert stages.calls[0] == (list(range(13)), False)
    assert heard.reasons[-1] is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("prompt_tokens", "left"), [(40, 40), (41, 40), (62, 40), (64, 40), (15, 15), (3, 3)]
)
def test_cut_prompt_leaves_token2wav_less_and_the_lm_all_of_it(tokenizer, prompt_tokens, left):
    stages, heard = hear(singles(60), tokenizer, request(prompt_tokens), CUT)
    assert heard.tokens == list(range(60))
    whole = request(prompt_tokens).voice
    voice = CUT.flow_voice(whole)
    assert stages.sounds[0].voice_key == voice.prompt_key
    assert voice.speech_tokens.tolist() == list(range(prompt_tokens - left, prompt_tokens))
    assert voice.prompt_mel.shape == (2 * left, 80)
    assert (voice.prompt_key == whole.prompt_key) == (left == prompt_tokens)
    assert stages.prompts[0][0].prompt_speech == list(range(prompt_tokens))
    assert stages.first_tokens == [25 if left == 3 else 13]
    assert len(stages.calls[0][0]) == stages.first_tokens[0]


def test_voice_is_cut_once():
    whole = request(41).voice
    assert CUT.flow_voice(whole) is CUT.flow_voice(whole)
    assert CUT.flow_voice(whole) is not CUT.flow_voice(request(41).voice)


def test_cut_voices_have_keys_of_their_own_however_they_are_heard(tokenizer):
    keys = []
    for prompt_tokens, streaming in ((41, True), (41, False), (62, True)):
        stages, _ = hear(singles(5), tokenizer, request(prompt_tokens, streaming=streaming), CUT)
        keys += [stages.sounds[0].voice_key, request(prompt_tokens).voice.prompt_key]
    assert keys[0] == keys[2]
    assert len(set(keys)) == 4


def test_long_text_is_one_answer_of_several_segments_with_seeds_of_their_own(tokenizer):
    stages, heard = hear(singles(5), tokenizer, request(text="This is a sentence of some length. " * 12))
    segments = len(stages.prompts)
    assert segments > 1
    assert heard.tokens == list(range(5)) * segments
    assert [reason for reason in heard.reasons if reason] == [FinishReason.STOP] * segments
    assert [chunk.segment for chunk in heard.chunks if chunk.finish_reason] == list(range(segments))
    assert len({sampling.seed for _, sampling in stages.prompts}) == segments
    assert [sound.continues for sound in dict.fromkeys(stages.sounds)] == [False, *(segments - 1) * [True]]


def failed(expected, match, groups, tokenizer, **options) -> CodedStages:
    with pytest.raises(expected, match=match) as caught:
        hear(groups, tokenizer, **options)
    return caught.value.stages


def test_failure_of_the_lm_reaches_the_caller_and_drops_what_was_opened(tokenizer):
    groups = [TokenGroup(list(range(40))), CosyVoiceError("no memory")]
    stages = failed(CosyVoiceError, "no memory", groups, tokenizer, held=True)
    assert (len(stages.stopped), len(stages.dropped)) == (0, 1)


def test_refusal_of_the_lm_costs_neither_a_stop_nor_a_drop(tokenizer):
    stages = failed(StageError, "full", [StageError("full", "UNAVAILABLE")], tokenizer)
    assert (stages.stopped, stages.dropped) == ([], [])


def test_refused_opening_stops_the_lm_and_drops_nothing(tokenizer):
    groups = [TokenGroup(list(range(40))), *singles(500)]
    error = StageError("full", "UNAVAILABLE")
    stages = failed(StageError, "full", groups, tokenizer, held=True, wave_error=error)
    assert (len(stages.stopped), stages.dropped) == (1, [])


@pytest.mark.parametrize("fails_from", [0, 1])
def test_failure_of_token2wav_stops_the_lm_and_drops_the_utterance(tokenizer, fails_from):
    groups = [TokenGroup(list(range(40))), *singles(500)]
    stages = failed(
        CosyVoiceError, "broken", groups, tokenizer,
        held=True, wave_error=CosyVoiceError("broken"), fails_from=fails_from,
    )  # fmt: skip
    assert len(stages.stopped) == len(stages.dropped) == 1
    assert stages.stopped == stages.dropped


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([TokenGroup([1, 2])], "ended without a reason"),
        (singles(3, FinishReason.ERROR), "failed without a reason"),
        (singles(3, FinishReason.CANCELLED), "told to stop before the end"),
    ],
)
def test_unhappy_end_of_the_lm_is_no_end_of_the_audio(tokenizer, groups, message):
    stages = failed(CosyVoiceError, message, groups, tokenizer)
    assert not any(last for _, last in stages.calls)


def test_listener_that_leaves_stops_the_lm_and_drops_the_utterance(tokenizer):
    groups = [TokenGroup(list(range(40))), *singles(500)]
    stages, heard = hear(groups, tokenizer, held=True, leaves_after=1)
    assert len(heard.chunks) == 1
    assert len(stages.stopped) == len(stages.dropped) == 1


def test_tokens_in_hand_are_heard_before_a_listener_runs_dry_though_no_more_come():
    """As when the text comes in pieces and its writer pauses."""
    asyncio.run(_heard_while_no_more_tokens_come())


async def _heard_while_no_more_tokens_come() -> None:
    class Paused(CodedStages):
        async def generate(self, *_):
            yield TokenGroup(list(range(28)))
            yield TokenGroup(list(range(28, 60)))
            await asyncio.Event().wait()

    dry_s = time.monotonic() + 1.3
    hop = dataclasses.replace(HOP, min_first_tokens=25, growth=2.0)
    settings = WaveSettings("voice", 0, 1.0)
    stages = Paused([])
    stages.hold.set()
    segment = SegmentSpeech(stages, hop, settings, 0, lambda: max(dry_s - time.monotonic(), 0.0))
    async with asyncio.timeout(60), aclosing(segment.chunks(TextSegment(Prompt([1])), None)) as chunks:
        first, *_ = await anext(chunks)
        second, *_ = await anext(chunks)
    assert (len(first), len(second)) == (28 * TOKEN_SAMPLES, 25 * TOKEN_SAMPLES)


def test_nobody_looks_at_the_clock_for_a_request_that_is_answered_as_a_whole():
    """Its cushion never falls, so no wait would end with a chunk."""
    whole, streamed = (HOP.of_segment(1.0, streaming) for streaming in (False, True))
    assert streamed.wait_s(15, 10, 600, OFFLINE_CUSHION_S) is not None
    assert whole.wait_s(15, 10, 600, OFFLINE_CUSHION_S) is None
