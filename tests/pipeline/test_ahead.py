"""The first chunk of a segment, begun before it is asked for: when it may be, and what becomes of it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import numpy as np
import pytest

from coded_stages import CodedStages
from cosyvoice_runtime.errors import CosyVoiceError, StageError
from cosyvoice_runtime.lm.generation import FinishReason
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.pipeline.hop import HopPolicy
from cosyvoice_runtime.pipeline.request import SpeechRequest
from cosyvoice_runtime.pipeline.stages import TokenGroup, WaveSettings
from cosyvoice_runtime.pipeline.text_segment import TextPieces
from cosyvoice_runtime.pipeline.utterance import Speech, speak
from cosyvoice_runtime.voice import Voice

PATIENCE_S = 30.0
HOP = HopPolicy(25, 3, 10, 25, 100, 25)
EARLY = dataclasses.replace(HOP, early_blocks=True)
FIRST = 13
"""Tokens of the first chunk after a prompt of 15."""


class AheadStages(CodedStages):
    """
    Attributes:
        aheads: how the first chunk of each utterance may be begun.
        asked_on: set when whoever reads the first group wants the next one.
        on_asking: called then.
    """

    def __init__(self, groups: list[TokenGroup | Exception]) -> None:
        super().__init__(groups)
        self.aheads: list[WaveSettings | None] = []
        self.asked_on = asyncio.Event()
        self.on_asking: Callable[[], object] = lambda: None

    async def generate(self, *arguments):
        self.aheads.append(arguments[4])
        async with aclosing(super().generate(*arguments)) as groups:
            async for group in groups:
                yield group
                self.asked_on.set()
                self.on_asking()

    async def generate_from_pieces(self, *arguments):
        self.aheads.append(arguments[5])
        async with aclosing(super().generate_from_pieces(*arguments)) as groups:
            async for group in groups:
                yield group
                self.asked_on.set()


def asked_of(prompt_tokens: int = 15, **options) -> SpeechRequest:
    tokens, mel = np.arange(prompt_tokens, dtype=np.int32), np.zeros((2 * prompt_tokens, 80), np.float32)
    voice = Voice("0" * 64, "some words", tokens, mel, np.zeros(192, np.float32), "checkpoint")
    return SpeechRequest("Hello there.", voice, seed=1, **options)


def whole(tokens: int) -> list[TokenGroup | Exception]:
    return [TokenGroup(list(range(tokens)), FinishReason.STOP)]


def spoken(
    stages: AheadStages,
    request: SpeechRequest,
    segments: int = 1,
    hop: HopPolicy = HOP,
    cushion_s: Callable[[], float] = lambda: 0.0,
) -> AheadStages:
    """After so many segments of a request have been heard."""

    async def hear() -> None:
        async with asyncio.timeout(PATIENCE_S):
            async for _ in speak(request, segments * [Prompt([1])], stages, hop, 24_000, cushion_s):
                pass

    asyncio.run(hear())
    assert (stages.stopped, stages.dropped) == ([], [])
    return stages


@pytest.mark.parametrize("tokens", [0, FIRST - 1, FIRST, 60])
@pytest.mark.parametrize("speed", [1.0, 1.5])
def test_first_chunk_may_be_begun_and_is_the_one_that_is_asked_for(tokens, speed):
    stages = spoken(AheadStages(whole(tokens)), asked_of(speed=speed))
    assert stages.aheads == [stages.sounds[0]]
    assert stages.first_tokens == [FIRST]
    first, last = stages.calls[0]
    assert (len(first), last) == (min(tokens, FIRST), tokens < FIRST)
    assert stages.cushions[0] == 0.0


def test_later_segment_may_be_begun_where_its_listener_has_nothing_left_to_play():
    stages, left_s = AheadStages(whole(5)), [0.0, 2.0, 0.0, 0.0]
    spoken(stages, asked_of(), 3, cushion_s=lambda: left_s[len(stages.aheads)])
    assert [ahead is not None for ahead in stages.aheads] == [True, False, True]
    assert [ahead.continues for ahead in stages.aheads if ahead is not None] == [False, True]


def test_nothing_is_begun_for_whoever_waits_for_all_of_it():
    stages = spoken(AheadStages(whole(60)), asked_of(streaming=False), 2)
    assert stages.aheads == [None, None]


@pytest.mark.parametrize(("prompt_tokens", "early"), [(50, True), (45, True), (40, False), (0, False)])
def test_nothing_is_begun_where_an_early_block_goes_out_alone(prompt_tokens, early):
    stages = spoken(AheadStages(whole(60)), asked_of(prompt_tokens), hop=EARLY)
    assert stages.aheads == [None if early else stages.sounds[0]]


class Hearing:
    """A segment on its way to a listener in a task of its own, whose stages stand still after a group."""

    def __init__(
        self, stages: AheadStages, pieces: TextPieces | None = None, hop: HopPolicy = HOP, **options
    ) -> None:
        self.samples: list[int] = []
        self.heard = asyncio.Event()
        stages.hold.clear()
        segment = Speech(asked_of(**options), stages, hop, lambda: 0.0).segment(0, Prompt([1]), pieces)
        self.hearing = asyncio.create_task(self._hear(segment))

    async def _hear(self, segment: AsyncGenerator) -> None:
        async with aclosing(segment) as chunks:
            async for samples, _ in chunks:
                self.samples.append(len(samples))
                self.heard.set()

    async def leave(self) -> None:
        self.hearing.cancel()
        await asyncio.wait([self.hearing])


def within_patience(work) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE_S))


@pytest.mark.parametrize("in_pieces", [False, True], ids=["whole text", "text in pieces"])
def test_whoever_leaves_after_tokens_came_and_before_a_wave_has_the_utterance_dropped(in_pieces):
    async def use() -> None:
        stages, pieces = AheadStages([TokenGroup([1, 2])]), None
        if in_pieces:
            pieces = TextPieces()
            pieces.put([1, 2])
        hearing = Hearing(stages, pieces)
        await stages.asked_on.wait()
        await hearing.leave()
        assert None not in stages.aheads
        assert stages.calls == []
        assert len(stages.stopped) == 1
        assert stages.dropped == stages.stopped

    within_patience(use())


def test_whoever_leaves_as_speech_without_tokens_ends_has_the_utterance_dropped():
    """It was begun and is over, so that its wave may be on its way."""

    async def use() -> None:
        stages = AheadStages([TokenGroup([], FinishReason.STOP)])
        hearing = Hearing(stages)
        stages.on_asking = hearing.hearing.cancel  # before the wave is asked for
        await asyncio.wait([hearing.hearing])
        assert hearing.hearing.cancelled()
        assert stages.calls == []
        assert len(stages.dropped) == 1

    within_patience(use())


@pytest.mark.parametrize("options", [{"streaming": False}, {"prompt_tokens": 45, "hop": EARLY}])
def test_whoever_leaves_where_nothing_was_begun_costs_no_drop(options):
    async def use() -> None:
        stages = AheadStages([TokenGroup([1, 2])])
        hearing = Hearing(stages, **options)
        await stages.asked_on.wait()
        await hearing.leave()
        assert stages.calls == []
        assert len(stages.stopped) == 1
        assert stages.dropped == []

    within_patience(use())


def test_whoever_leaves_before_any_token_leaves_the_rest_to_the_stage():
    async def use() -> None:
        stages = AheadStages([])
        hearing = Hearing(stages, TextPieces())
        while not stages.prompts:
            await asyncio.sleep(0)
        await hearing.leave()
        assert None not in stages.aheads
        assert len(stages.stopped) == 1
        assert stages.dropped == []

    within_patience(use())


def test_whoever_leaves_after_a_wave_has_the_utterance_dropped_once():
    async def use() -> None:
        stages = AheadStages([TokenGroup(list(range(FIRST)))])
        hearing = Hearing(stages)
        await hearing.heard.wait()
        await hearing.leave()
        assert len(hearing.samples) == 1
        assert len(stages.stopped) == 1
        assert stages.dropped == stages.stopped

    within_patience(use())


@pytest.mark.parametrize(
    ("groups", "options", "drops"),
    [
        ([], {}, 0),
        ([[]], {}, 0),
        ([[1, 2]], {}, 1),
        ([[1], [2]], {}, 1),
        ([[1, 2]], {"streaming": False}, 0),
        ([[1, 2]], {"prompt_tokens": 45, "hop": EARLY}, 0),
    ],
)
@pytest.mark.parametrize("error", [StageError("full", "UNAVAILABLE"), CosyVoiceError("no memory")])
def test_error_of_the_speech_lm_costs_a_drop_if_tokens_came_for_what_was_begun(groups, options, drops, error):
    async def use() -> None:
        stages = AheadStages([*map(TokenGroup, groups), error])
        hearing = Hearing(stages, **options)
        stages.hold.set()
        with pytest.raises(type(error), match=str(error)):
            await hearing.hearing
        assert stages.calls == []
        assert (len(stages.stopped), len(stages.dropped)) == (0, drops)

    within_patience(use())


def test_utterance_whose_first_wave_is_refused_is_not_dropped():
    async def use() -> None:
        stages = AheadStages(whole(60))
        stages.wave_error = StageError("full", "UNAVAILABLE")
        hearing = Hearing(stages)
        with pytest.raises(StageError, match="full"):
            await hearing.hearing
        assert stages.dropped == []

    within_patience(use())
