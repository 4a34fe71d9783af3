"""Utterances that gave up their pages go on with the same mel, and hold pages again when there are some."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cosyvoice_runtime.flow.paged_flow import FlowState
from cosyvoice_runtime.flow.torch.stream import FlowStream
from cosyvoice_runtime.flow.voice_flow import TokenSpan
from examples import examples
from small_flow import random_flow, random_prompt, random_tokens

TOLERANCE = 1e-5
FLOW = random_flow()
BLOCK = 25
PROMPT, TOKENS = random_prompt(60, 1), random_tokens(140, 1)
[WHOLE] = FLOW.generate([PROMPT], [TOKENS])


class NeverWhole(FlowStream):
    """Fails where an utterance is computed without pages."""

    def recomputed(self, spans):
        raise AssertionError("computed without pages")


def pushed(stream: FlowStream, state: FlowState, start: int, end: int) -> torch.Tensor:
    state.push(TOKENS[start:end], last=end == len(TOKENS))
    return stream.advance([state])[0]


def one_block_each(spans: Sequence[TokenSpan]) -> list[TokenSpan]:
    """As a GPU's captured calls cut."""
    return [span.first(BLOCK, FLOW.lookahead_tokens) for span in spans]


def assert_whole(*mels: torch.Tensor) -> None:
    torch.testing.assert_close(torch.cat(mels, dim=1), WHOLE, atol=TOLERANCE, rtol=0)


@pytest.fixture(params=["voice", "prompt", "closed voice"])
def opened(request):
    """A stream and an utterance with 60 tokens behind it."""
    stream = NeverWhole(FLOW, num_pages=12)
    prefix = None if request.param == "prompt" else stream.prefix(PROMPT)
    state = stream.open(prefix or PROMPT)
    first = pushed(stream, state, 0, 60)
    if request.param == "closed voice":
        stream.close(prefix)
    yield stream, state, first
    stream.close(state)
    if prefix is not None:
        stream.close(prefix)
    assert stream.pool.free_pages == 12


def test_pages_are_made_again_and_kept(opened):
    stream, state, first = opened
    held = len(state.pages)
    stream.give_up(state)
    assert stream.lost_pages(state) == held - len(state.prefix.pages)
    second = pushed(stream, state, 60, 100)
    assert len(state.pages) > held
    assert stream.lost_pages(state) == 0
    assert_whole(first, second, pushed(stream, state, 100, 140))


def test_what_the_next_call_takes_is_known(opened):
    stream, state, _ = opened
    for start, loses in ((60, False), (100, True)):
        if loses:
            stream.give_up(state)
        state.push(TOKENS[start : start + 40])
        wanted, free = stream.wanted_pages(state), stream.pool.free_pages
        stream.advance([state])
        assert free - stream.pool.free_pages == wanted > 0
        assert stream.wanted_pages(state) == 0


def test_failed_call_leaves_an_utterance_without_pages_as_it_was(opened, monkeypatch):
    stream, state, first = opened
    stream.give_up(state)
    free, mark = stream.pool.free_pages, state.mark()
    state.push(TOKENS[60:100])
    with monkeypatch.context() as broken:
        broken.setattr(stream, "continued", lambda work: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            stream.advance([state])
    stream.rewind(state, mark)
    assert (state.pages, stream.pool.free_pages) == (None, free)
    second = stream.advance([state])[0]
    assert_whole(first, second, pushed(stream, state, 100, 140))


def test_call_that_fails_in_its_second_part_gives_nothing(opened, monkeypatch):
    stream, state, first = opened
    stream.give_up(state)
    parts = iter([None, "fails"])

    def one_block(spans):
        if next(parts, None):
            raise RuntimeError("fails")
        return one_block_each(spans)

    mark = state.mark()
    state.push(TOKENS[60:110])
    with monkeypatch.context() as broken:
        broken.setattr(stream, "first_parts", one_block)
        with pytest.raises(RuntimeError, match="fails"):
            stream.advance([state])
    stream.rewind(state, mark)
    assert_whole(first, stream.advance([state])[0], pushed(stream, state, 110, 140))


def test_pages_are_made_again_in_parts(opened, monkeypatch):
    stream, state, first = opened
    stream.give_up(state)
    calls = stream.calls
    monkeypatch.setattr(stream, "first_parts", one_block_each)
    assert_whole(first, pushed(stream, state, 60, 110), pushed(stream, state, 110, 140))
    assert stream.calls - calls >= 4


def test_two_make_pages_again_where_there_is_room_for_both_alone():
    stream = FlowStream(FLOW, num_pages=14)
    states = [stream.open(PROMPT) for _ in range(3)]
    for state in states:
        pushed(stream, state, 0, 30)
        stream.give_up(state)
    stream.recomputing = 0
    for state in states:
        state.push(TOKENS[30:60])
    stream.advance(states)
    assert [state.pages is None for state in states] == [False, False, False]
    for state in states:
        stream.give_up(state)
    stream.pool.take(6)
    stream.recomputing = 0
    for state in states:
        state.push(TOKENS[60:90])
    stream.advance(states)
    assert [state.pages is None for state in states] == [False, True, True]
    assert stream.recomputing == 0  # nobody began what it could not end


def test_one_without_room_is_computed_without_pages_until_there_is_some():
    stream = FlowStream(FLOW, num_pages=12)
    state = stream.open(PROMPT)
    first = pushed(stream, state, 0, 60)
    taken = stream.pool.take(stream.pool.free_pages)
    second = pushed(stream, state, 60, 90)
    assert (state.pages, stream.recomputing) == (None, 1)
    stream.pool.release(taken)
    third = pushed(stream, state, 90, 120)
    assert len(state.pages) == (60 + 120) // BLOCK
    assert_whole(first, second, third, pushed(stream, state, 120, 140))
    assert stream.recomputing == 1  # time that it lost them


@settings(max_examples=examples(10, fresh=50), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 60), st.booleans()), min_size=1, max_size=8), st.integers(0, 9))
def test_any_schedule_of_losses_gives_the_same_mel(parts, pages):
    stream = FlowStream(FLOW, num_pages=pages)
    state, start, mels = stream.open(PROMPT), 0, []
    for count, loses in parts:
        if loses:
            stream.give_up(state)
        end = min(start + count, len(TOKENS) - 1)
        mels.append(pushed(stream, state, start, end))
        start = end
    mels.append(pushed(stream, state, start, len(TOKENS)))
    assert_whole(*mels)
    stream.close(state)
    assert stream.pool.free_pages == pages
