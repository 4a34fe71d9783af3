"""CosyVoice3's flow, block by block: the same frames as at once."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

from capture_fake import TracingCapture
from cosyvoice_runtime.flow.torch.flow import Flow, FlowNetwork
from cosyvoice_runtime.flow.torch.graphed_calls import CallBuckets
from cosyvoice_runtime.flow.torch.stream import FlowStream
from examples import examples
from small_flow import COSYVOICE3, random_flow, random_prompt, random_tokens
from streams import UTTERANCES, check_streams

TOLERANCE = 1e-5
FLOW = random_flow(config=COSYVOICE3)


def mels(flow: Flow, changed: int | None = None, streaming: bool = True) -> torch.Tensor:
    """Of an utterance of 62 tokens, of which one may be another."""
    tokens = random_tokens(62, 1)
    if changed is not None:
        tokens[changed] = (tokens[changed] + 1) % COSYVOICE3.token_vocab_size
    return flow.generate([random_prompt(0, 1)], [tokens], streaming=streaming)[0]


@settings(max_examples=examples(10, fresh=50))
@given(UTTERANCES)
def test_any_batch_of_streams_equals_whole_utterances(utterances):
    check_streams(FlowStream(FLOW, num_pages=60), utterances, TOLERANCE)


def test_replayed_calls_equal_whole_utterances():
    stream, capture = FlowStream(FLOW, num_pages=60), TracingCapture()
    assert stream.capture(CallBuckets(rows=(1, 3), blocks=(4,), before=(7,)), capture) == 2
    check_streams(stream, [((30, 80), [20, 60]), ((0, 45), [30]), ((57, 90), [3])], TOLERANCE)
    assert capture.replays > 0
    assert stream.eager.count == 0


def test_utterances_share_the_pages_of_their_voice():
    stream = FlowStream(FLOW, num_pages=12)
    prompt, tokens = random_prompt(60, 1), random_tokens(30, 1)
    prefix = stream.prefix(prompt)
    assert 12 - stream.pool.free_pages == 2
    states = [stream.open(prefix) for _ in range(3)]
    for state in states:
        state.push(tokens, last=True)
    [whole] = FLOW.generate([prompt], [tokens])
    for mel in stream.advance(states):
        torch.testing.assert_close(mel, whole, atol=TOLERANCE, rtol=0)


def test_utterance_without_pages_recomputes_the_same_mel():
    stream = FlowStream(FLOW, num_pages=1)
    prompt, tokens, pieces = random_prompt(31, 1), random_tokens(70, 1), []
    state = stream.open(prompt)
    for start in range(0, 70, 25):
        state.push(tokens[start : start + 25], last=start == 50)
        pieces += stream.advance([state])
    assert stream.recomputing == 1
    [whole] = FLOW.generate([prompt], [tokens])
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, atol=TOLERANCE, rtol=0)


def test_batch_of_whole_utterances_equals_single_runs():
    prompts = [random_prompt(length, length) for length in (0, 13, 30)]
    tokens = [random_tokens(length, length) for length in (40, 9, 22)]
    for streaming in (True, False):
        for finalize in (True, False):
            batch = FLOW.generate(prompts, tokens, streaming=streaming, finalize=finalize)
            for prompt, row, mel in zip(prompts, tokens, batch, strict=True):
                [single] = FLOW.generate([prompt], [row], streaming=streaming, finalize=finalize)
                torch.testing.assert_close(mel, single, atol=TOLERANCE, rtol=0)


def test_a_token_changes_the_block_of_the_third_before_it_and_none_before():
    plain, other = mels(FLOW), mels(FLOW, changed=52)
    torch.testing.assert_close(plain[:, :50], other[:, :50], atol=TOLERANCE, rtol=0)
    assert not torch.isclose(plain[:, 50:98], other[:, 50:98], atol=TOLERANCE, rtol=0).all(dim=0).any()


def test_order_matters_through_rotation_and_convolutions():
    """Without either, frames of equal input would be equal."""
    prompt = random_prompt(0, 1)
    [mel] = FLOW.generate([prompt], [[3] * 25])
    assert (mel[:, 10] - mel[:, 40]).abs().max() > 1e-3


def test_layers_of_the_time_are_not_kept():
    network = FlowNetwork(COSYVOICE3)
    before = sum(parameter.numel() for parameter in network.parameters())
    flow = Flow(COSYVOICE3, network, num_steps=4)
    kept, width, depth = sum(parameter.numel() for parameter in network.parameters()), 32, 2
    assert before - kept == (256 + 1) * width + (width + 1) * width * (1 + 6 * depth + 2)
    assert flow.solver.time_biases.shape == (6 * depth + 2, 4, width)
    with pytest.raises(ValueError, match="were dropped"):
        network.estimator.time_biases(torch.zeros(1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near_single(dtype):
    prompt, tokens = random_prompt(30, 6), random_tokens(45, 6)
    stream = FlowStream(random_flow(dtype, config=COSYVOICE3), num_pages=8)
    state = stream.open(prompt)
    state.push(tokens, last=True)
    [mel] = stream.advance([state])
    [whole] = FLOW.generate([prompt], [tokens])
    assert mel.dtype == torch.float32
    assert (mel - whole).square().mean().sqrt() < 0.05 * whole.square().mean().sqrt()
