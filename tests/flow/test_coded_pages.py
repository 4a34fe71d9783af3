from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.flow.torch.call_pages import LARGEST_CODE, as_kept, coded, decoded
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.pages import PagePool
from cosyvoice_runtime.flow.torch.stream import FlowStream
from examples import examples
from small_flow import CONFIG, COSYVOICE3, random_flow, random_prompt, random_tokens
from streams import UTTERANCES, pieces_of, spoken

FAMILIES = pytest.mark.parametrize("config", [CONFIG, COSYVOICE3], ids=["cosyvoice2", "cosyvoice3"])
LOST = 3e-3
"""|difference| / |mel| to keys and values as they are; these weights are larger than trained ones."""
TIES = 0.1
"""Of that, what roundings of float32 change: now and then a number falls to the code beside its own."""


def coding_flow(config: FlowConfig) -> Flow:
    flow = random_flow(config=config)
    flow.codes_pages = True
    return flow


def apart(mels: Sequence[Tensor], others: Sequence[Tensor]) -> float:
    mel, other = torch.cat(list(mels), dim=1), torch.cat(list(others), dim=1)
    return float((mel - other).norm() / other.norm())


def test_codes_lose_less_than_half_a_step_of_each_heads_largest_number():
    x = torch.randn(40, 3, 16) * torch.tensor([1e-2, 1.0, 300.0])[:, None]
    x[3, 1] = 0
    codes, scales = coded(x)
    assert (codes.dtype, scales.dtype) == (torch.int8, torch.float16)
    step = x.abs().amax(-1, keepdim=True) / LARGEST_CODE
    assert ((decoded(codes, scales, torch.float32) - x).abs() <= 0.51 * step + 1e-7 * step.sqrt()).all()
    assert as_kept(x)[3, 1].eq(0).all()


def test_what_is_kept_stays_as_it_is_when_it_is_kept_again():
    x = as_kept(torch.randn(200, 16))
    torch.testing.assert_close(as_kept(x), x, atol=0, rtol=2e-3)


@FAMILIES
@settings(max_examples=examples(5, fresh=30))
@given(utterances=UTTERANCES)
def test_any_batch_of_streams_is_near_whole_utterances_that_see_the_same_codes(config, utterances):
    exact, flow = random_flow(config=config), coding_flow(config)
    prompts = [random_prompt(prompt, seed) for seed, ((prompt, _), _) in enumerate(utterances)]
    tokens = [random_tokens(length, seed) for seed, ((_, length), _) in enumerate(utterances)]
    pieces = [pieces_of(each, cuts) for each, (_, cuts) in zip(tokens, utterances, strict=True)]
    streamed = spoken(FlowStream(flow, num_pages=60), prompts, pieces)
    whole = flow.generate(prompts, tokens)
    assert 0 < apart(whole, exact.generate(prompts, tokens)) < LOST
    assert apart(streamed, whole) < TIES * LOST


def test_an_utterance_that_finds_no_page_recomputes_what_the_others_see():
    flow, prompt, tokens = coding_flow(CONFIG), random_prompt(30, 1), random_tokens(70, 1)
    mels = [
        spoken(FlowStream(flow, num_pages=pages), [prompt], [pieces_of(tokens, [30, 55])]) for pages in (9, 0)
    ]
    assert apart(*mels) < TIES * LOST


def test_pages_in_8_bits_take_half_of_float16_and_the_scales():
    half, coding = random_flow(torch.float16), random_flow(torch.float16)
    coding.codes_pages = True
    plain, pool = PagePool(half, 3), PagePool(coding, 3)
    assert pool.estimator_pages.nbytes * 2 == plain.estimator_pages.nbytes
    assert pool.estimator_scales.nbytes * CONFIG.estimator.head_dim == plain.estimator_pages.nbytes
    saved = plain.estimator_pages.nbytes - pool.estimator_pages.nbytes - pool.estimator_scales.nbytes
    assert len(pool.estimator_pages) * (plain.page_bytes - pool.page_bytes) == saved


def test_a_page_that_stays_partly_empty_is_zeros():
    pool = PagePool(coding_flow(CONFIG), 2)
    pool.estimator_pages.fill_(3)
    pool.estimator_scales.fill_(torch.inf)
    pool.clear(3)
    assert not pool.estimator_pages[3].any()
    assert not pool.estimator_scales[3].any()
