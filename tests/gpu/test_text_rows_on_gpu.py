"""Rows of attention behind captured passes on a GPU, against the scores of plain passes in float32."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from lm_networks import Networks, far, move_pages
from torch import Tensor

from cosyvoice_runtime.gpu.cuda_graphs import CudaGraphCapture, attend_unplanned
from cosyvoice_runtime.gpu.transfer import shared_with_host
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.cache import CachePool
from cosyvoice_runtime.lm.text_segment import MOST_TEXT
from cosyvoice_runtime.lm.torch.captured_rows import RING, ComputeRows, text_rows_plain
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
from cosyvoice_runtime.lm.torch.device_steps import PLAIN_PASSES, CapturedPasses
from cosyvoice_runtime.lm.torch.head_scores import HeadScores
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM

pytest.importorskip("triton", reason="fused kernels need the package triton")

from cosyvoice_runtime.lm.kernels.fused_step import FusedStep
from cosyvoice_runtime.lm.kernels.prefill import FusedPrefill
from cosyvoice_runtime.lm.kernels.slot_draw import draw_after_step, slot_draw
from cosyvoice_runtime.lm.kernels.text_rows import text_rows

MAX_LEN = 1024
TOLERANCE = 0.1
"""|difference| / |expected| of what makes rows differ from even ones, after passes in bfloat16."""
HEADS = [(1, 3), (0, 1), (1, 0)]
POSITIONS = [[500], [300, 140, 601], [40 + 13 * slot for slot in range(64)]]


@pytest.fixture(scope="module")
def networks(checkpoint: Path) -> Networks:
    attend_unplanned()
    return Networks(checkpoint, MAX_LEN)


def text_of(slot: int, position: int) -> slice:
    """A text before a position that the pages' bounds do not divide: long, short, or a single token."""
    first = 1 + 7 * slot % 30
    return slice(first, first + (min(position - first, MOST_TEXT), 9, 1)[slot % 3])


def uneven(row: Tensor) -> Tensor:
    """What makes a row differ from even shares."""
    return row.float() - 1 / len(row)


@pytest.mark.parametrize("positions", POSITIONS, ids=len)
@torch.inference_mode()
def test_rows_behind_captured_steps_are_what_plain_steps_look_at(networks, positions):
    """Pages lie in another order at the replay than when the step was captured."""
    config, batch = networks.half.config, len(positions)
    whole, single = networks.caches(batch, positions)
    ends = [position + 1 for position in positions]
    paged, other = (networks.in_pages(whole, ends, backwards) for backwards in (False, True))
    paged.keep_queries(config, HEADS)
    kept = paged.kept
    assert kept is not None
    slots = torch.arange(batch).flip(0).cuda()
    tokens, places = torch.arange(batch).cuda() * 7, torch.tensor(positions).flip(0).cuda()
    networks.single.scores = HeadScores(HEADS)
    networks.single.decode_step(tokens, places, single.gathered(slots), MAX_LEN)
    scores, networks.single.scores = networks.single.scores, None
    step, view = FusedStep(networks.half, MAX_LEN), paged.gathered(slots)
    graph = CudaGraphCapture(paged.data.device)(lambda: step(tokens, places, paged.gathered(slots), MAX_LEN))
    del view
    move_pages(paged, other)
    graph.replay()
    texts = [text_of(slot, position) for slot, position in enumerate(positions)]
    followed = torch.zeros(batch, 2, dtype=torch.int32)
    for slot in range(batch):
        if slot % 4 != 1 or batch < 4:
            followed[slot] = torch.tensor([texts[slot].start, texts[slot].stop])
    found: dict[ComputeRows, Tensor] = {}
    for compute in (text_rows, text_rows_plain):
        rows, on_host = shared_with_host((batch, RING, MOST_TEXT), torch.float16, paged.data.device)
        rows.fill_(2)
        fed = torch.stack([places, slots, torch.ones_like(slots)])
        compute(kept, paged, fed, followed.cuda(), rows, MOST_TEXT)
        torch.cuda.synchronize()
        found[compute] = torch.from_numpy(on_host).clone()
    for place, slot in enumerate(slots.tolist()):
        text = texts[slot]
        size = text.stop - text.start
        own, other = (found[compute][slot] for compute in (text_rows, text_rows_plain))
        row = own[positions[slot] % RING]
        if not followed[slot].any():
            assert torch.equal(own, other)
            assert (own == 2).all()
            continue
        assert (own != 2).any(1).sum() == 1
        torch.testing.assert_close(row[:size], other[positions[slot] % RING, :size], rtol=2e-3, atol=1e-4)
        expected = scores.shares(text)[place].mean(0)[-1]
        if size > 1:
            assert far(uneven(row[:size]), uneven(expected.cpu())) < TOLERANCE
        else:
            assert row[0] == 1


def one_pass(lm: SpeechLM, prompt: Prompt, tokens: list[int]) -> Tensor:
    """Rows of all tokens, from one plain pass over the prompt and the tokens before the last."""
    speech = torch.tensor(tokens[:-1]).cuda()
    embeddings = torch.cat([lm.embed(prompt.segments()), lm.speech_embedding(speech)])
    lm.scores = HeadScores(HEADS, rows=len(tokens))
    lm.prefill(embeddings, 0, KVCache(lm.config, 1, MAX_LEN, "cuda", lm.dtype).view(0, 1))
    scores, lm.scores = lm.scores, None
    return scores.shares(prompt.text_positions)[0].mean(0)


@pytest.mark.parametrize("fused", [True, False], ids=["fused in bfloat16", "plain in float32"])
@torch.inference_mode()
def test_requests_that_join_and_leave_get_the_rows_of_their_own_tokens(networks, fused):
    """Some ask and others do not, and pages run short."""
    lm = networks.half if fused else networks.single
    passes = PLAIN_PASSES
    if fused:
        step, prefill = FusedStep(lm, MAX_LEN), FusedPrefill(lm, MAX_LEN)
        passes = CapturedPasses(step, prefill, slot_draw, draw_after_step(lm.device), text_rows)
    capture, pool = CudaGraphCapture(lm.device), CachePool(128, 12)
    decoder = BatchDecoder(lm, 5, MAX_LEN, capture, 4, passes, pool, HEADS)
    prompts = [Prompt(list(range(1, 12 + 37 * number)), [5], range(40 * number)) for number in range(5)]
    spoken = []

    def run(steps: int) -> None:
        while decoder.busy and steps:
            assert all(progress.error is None for progress in decoder.step())
            steps -= 1

    for number, prompt in enumerate(prompts):
        length = 30 + 40 * number
        options = SamplingOptions(seed=number, min_tokens=length, max_tokens=length)
        spoken.append(decoder.add(prompt, options))
        if number != 2:
            decoder.follow(spoken[-1], prompt.text_positions)
        run(7)
    run(10_000)
    assert spoken[2].rows is None
    for number, (prompt, generation) in enumerate(zip(prompts, spoken, strict=True)):
        if number != 2:
            found = torch.from_numpy(generation.rows.take(len(generation.tokens)))
            expected = one_pass(networks.single, prompt, generation.tokens).cpu()
            assert found.shape == expected.shape
            difference = found - expected
            even = expected - 1 / expected.shape[1]
            assert float(difference.norm() / even.norm()) < (TOLERANCE if fused else 1e-2)
