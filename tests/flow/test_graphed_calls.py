from __future__ import annotations

import logging

import pytest
import torch
from hypothesis import given, settings

from capture_fake import TracingCapture
from cosyvoice_runtime.flow.torch.call_inputs import BatchShape
from cosyvoice_runtime.flow.torch.graphed_calls import CallBuckets
from cosyvoice_runtime.flow.torch.stream import FlowStream
from examples import examples
from small_flow import random_flow, random_prompt, random_tokens
from streams import UTTERANCES, check_streams

TOLERANCE = 1e-5
FLOW = random_flow()
BUCKETS = CallBuckets(rows=(1, 3), blocks=(4,), before=(7,))


@pytest.fixture(scope="module")
def capture() -> TracingCapture:
    return TracingCapture()


@pytest.fixture(scope="module")
def stream(capture) -> FlowStream:
    stream = FlowStream(FLOW, num_pages=60)
    assert stream.capture(BUCKETS, capture) == 2
    return stream


@pytest.fixture(autouse=True)
def calls_are_replayed(stream):
    """Unless a test says otherwise."""
    stream.eager.count = 0
    yield
    assert stream.eager.count == 0


def test_replayed_calls_equal_whole_utterances(stream, capture):
    lengths = [(0, [28, 25, 26]), (30, [28, 53, 9]), (57, [3, 100, 25])]
    prompts = [random_prompt(prompt, prompt) for prompt, _ in lengths]
    states = [stream.open(prompt) for prompt in prompts]
    pieces = [[random_tokens(n, n + row) for n in counts] for row, (_, counts) in enumerate(lengths)]
    mels: list[list[torch.Tensor]] = [[] for _ in states]
    before = capture.replays
    for turn in range(3):
        for state, row in zip(states, pieces, strict=True):
            state.push(row[turn], last=turn == 2)
        for kept, mel in zip(mels, stream.advance(states), strict=True):
            kept.append(mel)
    assert capture.replays == before + 3 * (1 + FLOW.solver.num_steps)
    for state, prompt, row, mel in zip(states, prompts, pieces, mels, strict=True):
        stream.close(state)
        [whole] = FLOW.generate([prompt], [[token for piece in row for token in piece]])
        torch.testing.assert_close(torch.cat(mel, dim=1), whole, atol=TOLERANCE, rtol=0)
    assert stream.pool.free_pages == 60


@settings(max_examples=examples(6, fresh=30))
@given(UTTERANCES)
def test_any_batch_of_replayed_streams_equals_whole_utterances(stream, utterances):
    check_streams(stream, utterances, TOLERANCE)


def test_replays_of_fewer_rows_after_more_and_of_a_voice_alone(stream, capture):
    prompt = random_prompt(60, 5)
    prefix = stream.prefix(prompt)
    for rows in (3, 2, 1, 2):
        states = [stream.open(prefix) for _ in range(rows)]
        tokens = [random_tokens(30 + row, row) for row in range(rows)]
        for state, row in zip(states, tokens, strict=True):
            state.push(row, last=True)
        before = capture.replays
        mels = stream.advance(states)
        assert capture.replays == before + 1 + FLOW.solver.num_steps
        for state, row, mel in zip(states, tokens, mels, strict=True):
            stream.close(state)
            torch.testing.assert_close(mel, FLOW.generate([prompt], [row])[0], atol=TOLERANCE, rtol=0)
    stream.close(prefix)


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("count", [101, 128, 170])
def test_new_speech_longer_than_a_captured_call_is_several_calls_beside_a_short_one(
    stream, capture, last, count
):
    long, short = stream.open(random_prompt(10, 1)), stream.open(random_prompt(0, 2))
    tokens = random_tokens(count, 3), random_tokens(40, 4)
    long.push(tokens[0], last=last)
    short.push(tokens[1], last=True)
    before = capture.replays
    mels = stream.advance([long, short])
    ready = 10 + count if last else (10 + count - 3) // 25 * 25
    calls = -(-ready // 100)
    assert capture.replays == before + calls * (1 + FLOW.solver.num_steps)
    for state, row, mel, prompt in zip((long, short), tokens, mels, (10, 0), strict=True):
        stream.close(state)
        whole = FLOW.generate([random_prompt(prompt, 1 if prompt else 2)], [row])[0]
        assert mel.shape[1] == (2 * (ready - 10) if prompt else 80)
        torch.testing.assert_close(mel, whole[:, : mel.shape[1]], atol=TOLERANCE, rtol=0)


def test_prompt_longer_than_a_captured_call_is_replayed(stream, capture):
    prompt, tokens = random_prompt(128, 7), random_tokens(20, 7)
    before = capture.replays
    prefix = stream.prefix(prompt)
    assert capture.replays == before + 2 * (1 + FLOW.solver.num_steps)
    state = stream.open(prefix)
    state.push(tokens, last=True)
    [mel] = stream.advance([state])
    torch.testing.assert_close(mel, FLOW.generate([prompt], [tokens])[0], atol=TOLERANCE, rtol=0)
    stream.close(state)
    stream.close(prefix)


def test_nothing_is_captured_without_pages(capture):
    stream = FlowStream(FLOW, num_pages=0)
    assert stream.capture(BUCKETS, capture) == 0
    state = stream.open(random_prompt(3, 1))
    state.push(random_tokens(30, 1), last=True)
    [mel] = stream.advance([state])
    torch.testing.assert_close(
        mel, FLOW.generate([random_prompt(3, 1)], [random_tokens(30, 1)])[0], atol=TOLERANCE, rtol=0
    )


def test_more_utterances_than_captured_rows_are_several_calls(stream, capture):
    states = [stream.open(random_prompt(0, 0)) for _ in range(5)]
    tokens = random_tokens(20, 0)
    for state in states:
        state.push(tokens, last=True)
    before = capture.replays
    mels = stream.advance(states)
    assert capture.replays == before + 2 * (1 + FLOW.solver.num_steps)
    for state, mel in zip(states, mels, strict=True):
        stream.close(state)
        torch.testing.assert_close(
            mel, FLOW.generate([random_prompt(0, 0)], [tokens])[0], atol=TOLERANCE, rtol=0
        )


def test_the_page_of_zeros_stays_zero(stream):
    pool = stream.pool
    for pages in (pool.token_pages, pool.frame_pages, pool.estimator_pages):
        assert not pages[0].any()
    for tails in (pool.token_tails, pool.frame_tails, pool.estimator_tails):
        assert not tails[0].any()
        assert tails[2:].any()


def test_utterance_that_looks_back_further_than_all_graphs_runs_eagerly_and_is_counted(
    stream, capture, caplog
):
    """After 7 blocks no captured call fits: what is left is one eager call, beside others' replays."""
    caplog.set_level(logging.WARNING, logger="cosyvoice_runtime.flow.torch.stream")
    prompt, tokens = random_prompt(10, 1), random_tokens(300, 2)
    state, other = stream.open(prompt), stream.open(prompt)
    state.push(tokens, last=True)
    other.push(tokens[:90], last=True)
    before = capture.replays
    mel, short = stream.advance([state, other])
    assert capture.replays == before + 2 * (1 + FLOW.solver.num_steps)
    for one in (state, other):
        stream.close(one)
    torch.testing.assert_close(mel, FLOW.generate([prompt], [tokens])[0], atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(short, FLOW.generate([prompt], [tokens[:90]])[0], atol=TOLERANCE, rtol=0)
    assert stream.eager.count == 1
    assert [record.message for record in caplog.records] == [
        "calls run without CUDA graphs, several times slower: utterances look back on 8 blocks"
    ]
    stream.eager.count = 0


@pytest.mark.parametrize(
    ("needed", "bucket"),
    [
        (BatchShape(1, 7, 0, masked=False), BatchShape(1, 25, 3)),
        (BatchShape(2, 26, 4), BatchShape(3, 100, 5)),
        (BatchShape(3, 100, 5), BatchShape(3, 100, 5)),
        (BatchShape(4, 25, 0), None),
        (BatchShape(1, 101, 0), None),
        (BatchShape(1, 25, 6), None),
    ],
)
def test_the_smallest_bucket_that_holds_a_call_is_taken(needed, bucket):
    buckets = CallBuckets(rows=(1, 3), blocks=(1, 4), before=(3, 5))
    assert buckets.fitting(needed, 25) == bucket


@pytest.mark.parametrize(
    ("left", "blocks"),
    [
        ([2], 2),
        ([1, 2], 2),
        ([1] * 15 + [2], 1),
        ([4, 4, 4, 4, 2, 2], 4),
        ([4] + [1] * 4, 2),
        ([9] * 16, 4),
        ([1] * 16, 1),
        ([3] * 16, 2),
        ([3] * 8, 4),
        ([], 1),
    ],
)
def test_one_long_row_does_not_make_many_short_ones_as_long(left, blocks):
    assert CallBuckets(rows=(1, 16)).blocks_of(left) == blocks


def test_long_row_among_many_short_ones_goes_on_in_a_call_of_its_own(capture):
    stream = FlowStream(FLOW, num_pages=60)
    stream.capture(CallBuckets(rows=(1, 12), blocks=(1, 4), before=(7,)), capture)
    prompt = random_prompt(0, 0)
    states = [stream.open(prompt) for _ in range(12)]
    tokens = [random_tokens(78 if row == 5 else 28, row) for row in range(12)]
    for state, row in zip(states, tokens, strict=True):
        state.push(row)
    before = capture.replays
    mels = stream.advance(states)
    assert capture.replays == before + 2 * (1 + FLOW.solver.num_steps)
    for mel, row in zip(mels, tokens, strict=True):
        [whole] = FLOW.generate([prompt], [row], finalize=False)
        torch.testing.assert_close(mel, whole, atol=TOLERANCE, rtol=0)
