"""Decode steps of the speech LM in fused kernels, captured, against the network in float32."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lm_networks import Networks, far, move_pages

from cosyvoice_runtime.gpu.cuda_graphs import CudaGraphCapture
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.engine import LmEngine, prepare_engine
from cosyvoice_runtime.lm.generation import Generation, TokenLimits
from cosyvoice_runtime.lm.torch.device_steps import span_sizes
from cosyvoice_runtime.lm.torch.slot_draws import SlotTables, SlotWork
from cosyvoice_runtime.settings import Machine, TensorrtLlmSettings

pytest.importorskip("triton", reason="fused kernels need the package triton")

from cosyvoice_runtime.gpu.kernels.rows import row_on
from cosyvoice_runtime.lm.kernels.fused_step import FusedStep
from cosyvoice_runtime.lm.kernels.slot_draw import chained_slot_draw, slot_draw

MAX_LEN = 1024
TOLERANCE = 3e-3
"""|difference| / |expected| of logits."""
POSITIONS = [
    [0],
    [500],
    [900],
    [255, 0, 256],
    [*range(3, 800, 50)],
    [*range(2, 500, 11)],
    [7 * i for i in range(70)],
]


@pytest.fixture(scope="module")
def networks(checkpoint: Path) -> Networks:
    return Networks(checkpoint, MAX_LEN)


@pytest.mark.parametrize("positions", POSITIONS, ids=len)
@torch.inference_mode()
def test_captured_steps_are_steps_of_the_network(networks, positions):
    batch = len(positions)
    span = next(size for size in span_sizes(MAX_LEN) if size > max(positions))
    half, single = networks.caches(batch + 1, positions)
    before = half.data.clone()
    tokens, places = torch.arange(batch).cuda() * 7, torch.tensor(positions).cuda()
    expected = networks.single.decode_step(tokens, places, single.view(0, batch), span)
    step, view = FusedStep(networks.half, MAX_LEN), half.view(0, batch)
    launched = FusedStep(networks.half, MAX_LEN, row=replace(row_on(half.data.device), chained=False))(
        tokens, places, view, span
    )
    half.data.copy_(before)
    graph = CudaGraphCapture(torch.device("cuda", 0))(lambda: step(tokens, places, view, span))
    assert far(graph.result, expected) < TOLERANCE
    assert torch.equal(graph.result, launched)
    first = graph.result.clone()
    for _ in range(20):
        graph.replay()
        assert torch.equal(graph.result, first)
    slots = torch.arange(batch).cuda()
    assert far(*(data[:, :, slots, :, places] for data in (half.data, single.data))) < 2 * TOLERANCE
    half.data[:, :, slots, :, places] = before[:, :, slots, :, places]
    assert torch.equal(half.data, before)


@pytest.mark.parametrize("positions", POSITIONS, ids=len)
@torch.inference_mode()
def test_captured_steps_over_pages_are_those_over_slots_bit_by_bit(networks, positions):
    """Also when pages lie elsewhere than when they were captured."""
    batch, ends = len(positions), [position + 1 for position in positions]
    span = next(size for size in span_sizes(MAX_LEN) if size > max(positions))
    whole, _ = networks.caches(batch + 1, positions)
    paged, other = (networks.in_pages(whole, ends, backwards) for backwards in (False, True))
    tokens, places = torch.arange(batch).cuda() * 7, torch.tensor(positions).cuda()
    step, capture = FusedStep(networks.half, MAX_LEN), CudaGraphCapture(whole.data.device)
    views = whole.view(0, batch), paged.view(0, batch)
    over_slots = capture(lambda: step(tokens, places, views[0], span))  # its memory is the pool's
    expected = over_slots.result.clone()
    graph = capture(lambda: step(tokens, places, views[1], span))
    assert torch.equal(graph.result, expected)
    move_pages(paged, other)
    graph.replay()
    assert torch.equal(graph.result, expected)


@pytest.mark.parametrize("batch", [1, 5, 16, 64])
@torch.inference_mode()
def test_a_chained_draw_is_the_draw_of_the_same_logits(networks, batch):
    """Over several steps, each of which begins while the one before it is under way on the GPU."""
    half, _ = networks.caches(batch, [20] * batch)
    step, view = FusedStep(networks.half, MAX_LEN), half.view(0, batch)
    slots = torch.arange(batch).cuda()
    work, places = torch.full_like(slots, SlotWork.DRAW), torch.full_like(slots, 20)
    work[batch // 2 : -1 : 3] = SlotWork.IDLE
    chained, alone = (SlotTables(networks.half.config, batch, MAX_LEN, half.data.device) for _ in range(2))
    sequences = [
        Generation(networks.half.config, SamplingOptions(seed=slot, tau=0.1), [], TokenLimits(90, 90))
        for slot in range(batch)
    ]
    for tables in (chained, alone):
        tables.set(slots, sequences)

    def drawn():
        logits = step(chained.tokens, places, view, 256)
        return logits, chained_slot_draw(logits, slots, work, chained)

    graph = CudaGraphCapture(half.data.device)(drawn)
    chained.set(slots, sequences)
    chained.tokens.zero_()
    for _ in range(20):
        graph.replay()
        logits, ids = graph.result
        acting = work == SlotWork.DRAW
        assert torch.equal(ids[acting], slot_draw(logits.clone(), slots, work, alone)[acting])
    assert torch.equal(chained.counts, alone.counts)


def open_engine(checkpoint: Path, kernels: str) -> LmEngine:
    settings = TensorrtLlmSettings(
        checkpoint_dir=checkpoint,
        device="cuda",
        dtype="bfloat16",
        kernels=kernels,
        max_slots=6,
        max_tokens=200,
        max_sequence_tokens=512,
        kv_cache_tokens=6 * 512,
    )
    return prepare_engine(settings.resolved(Machine(cores=1, gpu=True)))()


def test_an_utterance_spoken_with_fused_kernels_is_spoken_so_again(networks, checkpoint, replays):
    engine = open_engine(checkpoint, "fused")
    runs = []
    for _ in range(2):
        options = SamplingOptions(min_tokens=60, max_tokens=60, seed=3)
        engine.add(Prompt(list(range(1, 30))), options)
        tokens: list[int] = []
        finished = False
        while not finished:
            for progress in engine.step():
                assert progress.error is None
                tokens += progress.tokens
                finished = progress.finish_reason is not None
        runs.append(tokens)
    assert len(runs[0]) == 60
    assert runs[0] == runs[1]
    assert len(replays) >= 118
