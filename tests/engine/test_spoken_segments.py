"""Tokens of a segment that another server has spoken a part of, or all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from coded_networks import SPEECH, Lm, Waves

from cosyvoice_runtime.engine.direct_stages import DirectStages
from cosyvoice_runtime.engine.utterance.utterance import TokenGroup
from cosyvoice_runtime.lm import FinishReason, Prompt, SamplingOptions
from cosyvoice_runtime.lm.spoken import told
from cosyvoice_runtime.process.event_loop import LoopCalls

PATIENCE_S = 30.0
ALL = told(SPEECH, FinishReason.STOP)


async def no_voice(key: str) -> None:
    raise AssertionError(f"{key} is asked for")


def groups(lm: Lm, spoken: Sequence[int], with_rows: bool = False) -> list[TokenGroup]:
    async def work() -> list[TokenGroup]:
        stages = DirectStages(lm, Waves(), LoopCalls(), no_voice, 25, PATIENCE_S, PATIENCE_S)
        prompt = Prompt([5], spoken=spoken)
        given = prompt, SamplingOptions(), "a", 13, None, with_rows
        return [group async for group in stages.generate(*given)]

    return asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


def joined(parts: Sequence[Sequence[int]]) -> list[int]:
    return [token for part in parts for token in part]


@pytest.mark.parametrize("cut", [0, 1, 13, 40, 60])
def test_given_tokens_come_first_and_the_speech_lm_says_the_others(cut):
    lm = Lm()
    found = groups(lm, ALL[:cut])
    assert joined([group.tokens for group in found]) == list(SPEECH)
    assert joined([group.drawn for group in found]) == ALL
    assert len(lm.prompts) == 1
    assert list(found[0].tokens) == list(SPEECH[: cut or 13])


def test_ended_segment_is_spoken_without_the_speech_lm():
    lm = Lm()
    for reason in (FinishReason.STOP, FinishReason.LENGTH, FinishReason.REPETITION):
        spoken = told([7, 8, 9], reason)
        assert groups(lm, spoken) == [TokenGroup([7, 8, 9], reason, spoken)]
    assert lm.prompts == []


def test_run_of_silence_goes_on_behind_given_tokens():
    lm = Lm()
    lm.said, lm.silent_tokens = [1, *[0] * 9, 2], frozenset({0})
    for cut in (0, 4, 8, 10):
        found = groups(lm, lm.said[:cut])
        assert joined([group.tokens for group in found]) == [1, *[0] * 5, 2]
        assert joined([group.drawn for group in found]) == told(lm.said, FinishReason.STOP)


def test_speech_lm_that_can_not_go_on_from_tokens_tells_none():
    lm = Lm()
    lm.takes_spoken = False
    found = groups(lm, ())
    assert joined([group.tokens for group in found]) == list(SPEECH)
    assert joined([group.drawn for group in found]) == []


def test_rows_tell_which_tokens_are_spoken():
    lm = Lm()
    lm.said, lm.silent_tokens = [1, *[0] * 9, 2], frozenset({0})
    found = groups(lm, (), with_rows=True)
    rows = [row for group in found if group.rows is not None for row in group.rows[:, 0].tolist()]
    assert rows == list(range(11))
    are_spoken = joined([group.are_spoken for group in found])
    assert are_spoken == [True, *[True] * 5, *[False] * 4, True]
    assert joined([group.tokens for group in found]) == [1, *[0] * 5, 2]


@pytest.mark.parametrize("cut", [0, 1])
def test_nobody_knows_what_given_tokens_looked_at(cut):
    lm = Lm()
    found = groups(lm, ALL[:cut], with_rows=True)
    assert lm.followed == [not cut]
    assert all((group.rows is None) == bool(cut) for group in found if group.finish_reason is None)
