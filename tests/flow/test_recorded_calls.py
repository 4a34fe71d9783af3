from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from small_flow import random_flow, random_prompt, random_tokens
from streams import UTTERANCES, check_streams

from cosyvoice_runtime.cuda_graphs import row_sizes
from cosyvoice_runtime.flow.paged_inputs import BatchShape
from cosyvoice_runtime.flow.recorded_calls import CallSizes
from cosyvoice_runtime.flow.stream import FlowStream
from recorder_fake import TracingRecorder

TOLERANCE = 1e-5
FLOW = random_flow()
SIZES = CallSizes(rows=(1, 3), chunks=(4,), before=(7,))


@pytest.fixture(scope="module")
def recorder() -> TracingRecorder:
    return TracingRecorder()


@pytest.fixture(scope="module")
def stream(recorder) -> FlowStream:
    stream = FlowStream(FLOW, num_pages=60)
    assert stream.record(SIZES, recorder) == 2
    return stream


@pytest.mark.parametrize(("most", "sizes"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8])])
def test_rows_double_up_to_the_most(most, sizes):
    assert row_sizes(most) == sizes


def test_replayed_calls_equal_whole_utterances(stream, recorder):
    lengths = [(0, [28, 25, 26]), (30, [28, 53, 9]), (57, [3, 100, 25])]
    prompts = [random_prompt(prompt, prompt) for prompt, _ in lengths]
    states = [stream.open(prompt) for prompt in prompts]
    pieces = [[random_tokens(n, n + row) for n in counts] for row, (_, counts) in enumerate(lengths)]
    mels: list[list[torch.Tensor]] = [[] for _ in states]
    before = recorder.replays
    for turn in range(3):
        for state, row in zip(states, pieces, strict=True):
            state.push(row[turn], last=turn == 2)
        for kept, mel in zip(mels, stream.advance(states), strict=True):
            kept.append(mel)
    assert recorder.replays == before + 3 * (1 + FLOW.solver.num_steps)
    for state, prompt, row, mel in zip(states, prompts, pieces, mels, strict=True):
        stream.close(state)
        [whole] = FLOW.generate([prompt], [[token for piece in row for token in piece]])
        torch.testing.assert_close(torch.cat(mel, dim=1), whole, atol=TOLERANCE, rtol=0)
    assert stream.pool.free_pages == 60


@settings(max_examples=15)
@given(UTTERANCES)
def test_any_batch_of_replayed_streams_equals_whole_utterances(stream, utterances):
    check_streams(stream, utterances, TOLERANCE)


def test_replays_of_fewer_rows_after_more_and_of_a_voice_alone(stream, recorder):
    prompt = random_prompt(60, 5)
    prefix = stream.prefix(prompt)
    for rows in (3, 2, 1, 2):
        states = [stream.open(prefix) for _ in range(rows)]
        tokens = [random_tokens(30 + row, row) for row in range(rows)]
        for state, row in zip(states, tokens, strict=True):
            state.push(row, last=True)
        before = recorder.replays
        mels = stream.advance(states)
        assert recorder.replays == before + 1 + FLOW.solver.num_steps
        for state, row, mel in zip(states, tokens, mels, strict=True):
            stream.close(state)
            torch.testing.assert_close(mel, FLOW.generate([prompt], [row])[0], atol=TOLERANCE, rtol=0)
    stream.close(prefix)


def test_long_utterance_does_not_keep_others_from_their_recording(stream, recorder):
    long, short = stream.open(random_prompt(0, 1)), stream.open(random_prompt(0, 2))
    tokens = random_tokens(130, 3), random_tokens(40, 4)
    long.push(tokens[0], last=True)
    short.push(tokens[1], last=True)
    before = recorder.replays
    mels = stream.advance([long, short])
    assert recorder.replays == before + 1 + FLOW.solver.num_steps
    for state, row, mel, seed in zip((long, short), tokens, mels, (1, 2), strict=True):
        stream.close(state)
        whole = FLOW.generate([random_prompt(0, seed)], [row])[0]
        torch.testing.assert_close(mel, whole, atol=TOLERANCE, rtol=0)


def test_nothing_is_recorded_without_pages(recorder):
    stream = FlowStream(FLOW, num_pages=0)
    assert stream.record(SIZES, recorder) == 0
    state = stream.open(random_prompt(3, 1))
    state.push(random_tokens(30, 1), last=True)
    [mel] = stream.advance([state])
    torch.testing.assert_close(
        mel, FLOW.generate([random_prompt(3, 1)], [random_tokens(30, 1)])[0], atol=TOLERANCE, rtol=0
    )


def test_more_utterances_than_recorded_rows_are_several_calls(stream, recorder):
    states = [stream.open(random_prompt(0, 0)) for _ in range(5)]
    tokens = random_tokens(20, 0)
    for state in states:
        state.push(tokens, last=True)
    before = recorder.replays
    mels = stream.advance(states)
    assert recorder.replays == before + 2 * (1 + FLOW.solver.num_steps)
    for state, mel in zip(states, mels, strict=True):
        stream.close(state)
        torch.testing.assert_close(
            mel, FLOW.generate([random_prompt(0, 0)], [tokens])[0], atol=TOLERANCE, rtol=0
        )


def test_the_page_of_zeros_stays_zero(stream):
    pool = stream.pool
    for pages in (pool.token_pages, pool.frame_pages, pool.estimator_pages):
        assert not pages[0].any()


def test_calls_longer_than_the_recordings_are_computed_as_before(stream, recorder):
    prompt, tokens = random_prompt(10, 1), random_tokens(130, 2)
    state = stream.open(prompt)
    state.push(tokens, last=True)
    before = recorder.replays
    [mel] = stream.advance([state])
    stream.close(state)
    assert recorder.replays == before
    torch.testing.assert_close(mel, FLOW.generate([prompt], [tokens])[0], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize(
    ("needed", "recorded"),
    [
        (BatchShape(1, 7, 0, masked=False), BatchShape(1, 25, 3)),
        (BatchShape(2, 26, 4), BatchShape(3, 100, 5)),
        (BatchShape(3, 100, 5), BatchShape(3, 100, 5)),
        (BatchShape(4, 25, 0), None),
        (BatchShape(1, 101, 0), None),
        (BatchShape(1, 25, 6), None),
    ],
)
def test_the_smallest_recording_that_holds_a_call_is_taken(needed, recorded):
    sizes = CallSizes(rows=(1, 3), chunks=(1, 4), before=(3, 5))
    assert sizes.fitting(needed, 25) == recorded
