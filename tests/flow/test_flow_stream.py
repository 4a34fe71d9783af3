from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from cosyvoice_runtime.errors import CheckpointError, InvalidInput
from cosyvoice_runtime.flow.torch.flow import Flow, FlowNetwork
from cosyvoice_runtime.flow.torch.stream import FlowStream
from examples import examples
from small_flow import CONFIG, random_flow, random_prompt, random_tokens
from streams import UTTERANCES, check_streams

TOLERANCE = 1e-5
FLOW = random_flow()


@settings(max_examples=examples(10, fresh=50))
@given(UTTERANCES)
def test_any_batch_of_streams_equals_whole_utterances(utterances):
    check_streams(FlowStream(FLOW, num_pages=60), utterances, TOLERANCE)


def test_batch_of_whole_utterances_equals_single_runs():
    prompts = [random_prompt(length, length) for length in (0, 13, 30)]
    tokens = [random_tokens(length, length) for length in (40, 9, 22)]
    for streaming in (True, False):
        for finalize in (True, False):
            batch = FLOW.generate(prompts, tokens, streaming=streaming, finalize=finalize)
            for prompt, row, mel in zip(prompts, tokens, batch, strict=True):
                [single] = FLOW.generate([prompt], [row], streaming=streaming, finalize=finalize)
                torch.testing.assert_close(mel, single, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("prompt_length", [0, 27, 28, 60, 78])
def test_utterances_share_the_pages_of_their_voice(prompt_length):
    stream = FlowStream(FLOW, num_pages=12)
    prompt, tokens = random_prompt(prompt_length, 1), random_tokens(30, 1)
    prefix = stream.prefix(prompt)
    shared = max(prompt_length - CONFIG.lookahead_tokens, 0) // 25
    assert 12 - stream.pool.free_pages == shared
    states = [stream.open(prefix) for _ in range(3)]
    for state in states:
        state.push(tokens, last=True)
    mels = stream.advance(states)
    own = -(-(prompt_length + len(tokens)) // 25) - shared
    assert 12 - stream.pool.free_pages == shared + 3 * own
    [whole] = FLOW.generate([prompt], [tokens])
    for mel in mels:
        torch.testing.assert_close(mel, whole, atol=TOLERANCE, rtol=0)
    for held in (*states, prefix):
        stream.close(held)
        stream.close(held)
    assert stream.pool.free_pages == 12


def test_utterance_without_pages_recomputes_the_same_mel():
    stream = FlowStream(FLOW, num_pages=3)
    prompts = [random_prompt(31, seed) for seed in range(3)]
    tokens = [random_tokens(70, seed) for seed in range(3)]
    states = [stream.open(prompt) for prompt in prompts]
    mels: list[list[torch.Tensor]] = [[], [], []]
    for start in range(0, 70, 25):
        for state, row in zip(states, tokens, strict=True):
            state.push(row[start : start + 25], last=start == 50)
        for row, mel in enumerate(stream.advance(states)):
            mels[row].append(mel)
    assert stream.recomputing == 3
    assert stream.pool.free_pages == 3
    for prompt, row, mel in zip(prompts, tokens, mels, strict=True):
        [whole] = FLOW.generate([prompt], [row])
        torch.testing.assert_close(torch.cat(mel, dim=1), whole, atol=TOLERANCE, rtol=0)


def test_prefix_without_pages_is_empty_and_utterances_still_work():
    stream = FlowStream(FLOW, num_pages=1)
    prompt, tokens = random_prompt(60, 5), random_tokens(12, 5)
    prefix = stream.prefix(prompt)
    assert prefix.tokens_done == 0
    state = stream.open(prefix)
    state.push(tokens, last=True)
    [mel] = stream.advance([state])
    torch.testing.assert_close(mel, FLOW.generate([prompt], [tokens])[0], atol=TOLERANCE, rtol=0)


def test_no_frame_leaves_before_its_chunk_and_look_ahead_are_known():
    stream = FlowStream(FLOW, num_pages=4)
    state = stream.open(random_prompt(13, 2))
    state.push(random_tokens(14, 2))
    assert stream.advance([state])[0].shape[1] == 0
    state.push([1])
    assert stream.advance([state])[0].shape[1] == 2 * 12


def test_one_row_of_nan_fails_alone():
    stream = FlowStream(FLOW, num_pages=8)
    good, bad = random_prompt(13, 3), random_prompt(30, 4)
    bad.mel[5] = torch.nan
    for round_ in range(2):  # the second round reuses the pages that the bad row has soiled
        states = [stream.open(good), stream.open(bad)]
        for state, length in zip(states, (40, 10), strict=True):
            state.push(random_tokens(length, 3), last=True)
        mel, soiled = stream.advance(states)
        assert soiled.isnan().any()
        whole = FLOW.generate([good], [random_tokens(40, 3)])[0]
        torch.testing.assert_close(mel, whole, atol=TOLERANCE, rtol=0, msg=f"round {round_}")
        for state in states:
            stream.close(state)


@pytest.mark.parametrize("token", [1.0, "1", None, [1], 2**70, -(2**70)], ids=repr)
@pytest.mark.parametrize("others", [[], [3, 4]], ids=["alone", "among-others"])
def test_token_that_is_no_known_number_is_refused(token, others):
    state = FlowStream(FLOW, num_pages=1).open(random_prompt(2, 1))
    with pytest.raises(InvalidInput, match="speech_tokens"):
        state.push([*others, token])
    assert len(state.tokens) == 2


@pytest.mark.parametrize("tokens", [[], [0, 49], np.array([3, 4], np.int32), (np.int16(3), 4)], ids=repr)
def test_whole_numbers_of_any_kind_are_tokens(tokens):
    state = FlowStream(FLOW, num_pages=1).open(random_prompt(2, 1))
    state.push(tokens)
    assert state.tokens.dtype == np.int64
    assert state.tokens[2:].tolist() == list(tokens)


def test_pool_knows_its_memory_in_advance():
    stream = FlowStream(FLOW, num_pages=3)
    pool = stream.pool
    pages = pool.token_pages, pool.frame_pages, pool.estimator_pages
    tails = pool.token_tails, pool.frame_tails, pool.estimator_tails
    held = sum(part[2:].nbytes for part in (*pages, *tails))
    assert held == 3 * pool.page_bytes


def test_token_out_of_range_names_token_and_limit_and_leaves_the_state():
    state = FlowStream(FLOW, num_pages=1).open(random_prompt(2, 1))
    with pytest.raises(InvalidInput, match=r"speech_tokens: 50 is not accepted; tokens are 0 to 49"):
        state.push([3, 50])
    with pytest.raises(InvalidInput, match="speech_tokens: -1"):
        state.push([-1])
    assert len(state.tokens) == 2


def test_prompt_whose_parts_do_not_fit_is_refused():
    stream = FlowStream(FLOW, num_pages=1)
    prompt = random_prompt(4, 1)
    with pytest.raises(
        InvalidInput, match=r"prompt_mel: \(7, 20\) is not accepted; its shape must be \(8, 20\)"
    ):
        stream.open(dataclasses.replace(prompt, mel=prompt.mel[:7]))
    with pytest.raises(InvalidInput, match=r"speaker_embedding: \(3,\)"):
        stream.open(dataclasses.replace(prompt, speaker=prompt.speaker[:3]))


def test_prompt_over_30_seconds_is_refused_before_a_page_is_taken():
    stream = FlowStream(FLOW, num_pages=1)
    with pytest.raises(
        InvalidInput,
        match=r"speech_tokens: 7400 is not accepted; a prompt has at most 750 tokens \(30 s\)",
    ):
        stream.prefix(random_prompt(7400, 1))
    assert stream.pool.free_pages == 1


def test_utterance_over_300_seconds_is_refused():
    with pytest.raises(InvalidInput, match=r"at most 7500 tokens \(300 s\), prompt included"):
        FlowStream(FLOW, num_pages=1).open(random_prompt(1, 1)).push([0] * 7500)


def test_mismatched_chunk_sizes_can_not_be_streamed():
    estimator = dataclasses.replace(CONFIG.estimator, chunk_frames=40)
    config = dataclasses.replace(CONFIG, estimator=estimator)
    with pytest.raises(CheckpointError, match="50 frames, the estimator's 40"):
        FlowStream(Flow(config, FlowNetwork(config)), num_pages=1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near_single(dtype):
    half = random_flow(dtype)
    prompt, tokens = random_prompt(30, 6), random_tokens(45, 6)
    stream = FlowStream(half, num_pages=8)
    state = stream.open(prompt)
    state.push(tokens, last=True)
    [mel] = stream.advance([state])
    [whole] = FLOW.generate([prompt], [tokens])
    assert mel.dtype == torch.float32
    assert (mel - whole).square().mean().sqrt() < 0.05 * whole.square().mean().sqrt()
