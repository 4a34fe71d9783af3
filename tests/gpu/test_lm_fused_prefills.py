"""Prompts of the speech LM with fused kernels, captured, against the network in float32."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from lm_networks import Networks, far, move_pages
from torch import Tensor

from cosyvoice_runtime.gpu.cuda_graphs import CudaGraphCapture, attend_unplanned
from cosyvoice_runtime.lm.cache import PAGE
from cosyvoice_runtime.lm.torch.kv_cache import CacheView, KVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM

pytest.importorskip("triton", reason="fused kernels need the package triton")

from cosyvoice_runtime.lm.kernels.prefill import FusedPrefill

MAX_LEN = 2048
CHANCE = 1.3
"""Of two ways that round alike, either may come nearer by chance: with two layers by a tenth now and then."""
TOLERANCE = 5e-2
"""|difference| / |expected| of keys and values."""


@dataclasses.dataclass(frozen=True)
class FedRows:
    """Prompts of one pass: where each begins, its codes, how far all are padded, and what they attend to."""

    starts: list[int]
    lengths: list[int]
    positions: int
    span: int | None = None

    def __str__(self) -> str:
        return f"{len(self.starts)} of {self.positions}{'' if self.span is None else f' to {self.span}'}"

    @property
    def batch(self) -> int:
        return len(self.starts)

    @property
    def ends(self) -> list[int]:
        return [start + length for start, length in zip(self.starts, self.lengths, strict=True)]

    def given(self, lm: SpeechLM) -> tuple[Tensor, Tensor, Tensor]:
        """Random codes of all tables, lengths and starts, in columns of one table as a pass has them."""
        generator = torch.Generator().manual_seed(self.positions + self.batch)
        codes = lm.config.text_vocab_size + 2 + lm.config.speech_tokens
        table = torch.randint(codes, (self.batch, 18 + self.positions), generator=generator)
        table[:, 0], table[:, 1] = torch.tensor(self.lengths), torch.tensor(self.starts)
        table = table.cuda()
        return table[:, 18:], table[:, 0], table[:, 1]


WHOLE = [
    FedRows([0], [128], 128),
    FedRows([0], [61], 64),
    FedRows([0], [1500], 2048),
    FedRows([0] * 4, [64, 3, 50, 1], 64),
    FedRows([0] * 8, [128, 17, 100, 127, 1, 90, 64, 128], 128),
    FedRows([0] * 16, list(range(68, 132, 4)), 128),
]
TEXTS = [
    FedRows([100], [16], 16, 512),
    FedRows([1900], [5], 16, MAX_LEN),
    FedRows([700, 3, 1900, 0], [16, 5, 1, 9], 16, MAX_LEN),
    FedRows(list(range(0, 480, 30)), [16, 9] * 8, 16, 512),
]
PASSES = pytest.mark.parametrize("fed", WHOLE + TEXTS, ids=str)


@pytest.fixture(scope="module")
def networks(checkpoint: Path) -> Networks:
    attend_unplanned()
    return Networks(checkpoint, MAX_LEN)


def viewed(cache: KVCache, fed: FedRows) -> CacheView:
    return cache.gathered(torch.arange(fed.batch).cuda())


def cached(cache: KVCache, fed: FedRows) -> Tensor:
    """Keys and values of all that is fed, in own slots."""
    spans = enumerate(zip(fed.starts, fed.ends, strict=True))
    return torch.cat([cache.data[:, :, slot, :, start:end] for slot, (start, end) in spans], dim=3)


@PASSES
@torch.inference_mode()
def test_captured_prompts_are_as_near_to_float32_as_the_network(networks, fed):
    half, single = networks.caches(fed.batch + 1, fed.starts)
    plain = KVCache(networks.half.config, half.slots, MAX_LEN, "cuda", torch.bfloat16)
    plain.data.copy_(half.data)
    before, given = half.data.clone(), fed.given(networks.half)
    expected = networks.single.prefill_codes(*given, viewed(single, fed), fed.span)
    of_network = networks.half.prefill_codes(*given, viewed(plain, fed), fed.span)
    prefill, view = FusedPrefill(networks.half, MAX_LEN), viewed(half, fed)
    graph = CudaGraphCapture(torch.device("cuda", 0))(lambda: prefill(*given, view, fed.span))
    assert graph.result.dtype == torch.float32
    assert far(graph.result, expected) < CHANCE * far(of_network, expected)
    written, of_plain, exact = (cached(cache, fed) for cache in (half, plain, single))
    assert far(written, exact) < min(CHANCE * far(of_plain, exact), TOLERANCE)
    for slot, (start, end) in enumerate(zip(fed.starts, fed.ends, strict=True)):
        half.data[:, :, slot, :, start:end] = before[:, :, slot, :, start:end]
    assert torch.equal(half.data, before)


@PASSES
@torch.inference_mode()
def test_replays_give_the_same_bits_whatever_the_others_are_fed(networks, fed):
    half, _ = networks.caches(fed.batch + 1, fed.starts)
    codes, lengths, starts = fed.given(networks.half)
    prefill, view = FusedPrefill(networks.half, MAX_LEN), viewed(half, fed)
    graph = CudaGraphCapture(half.data.device)(lambda: prefill(codes, lengths, starts, view, fed.span))
    first, written = graph.result.clone(), half.data.clone()
    for _ in range(20):
        graph.replay()
        assert torch.equal(graph.result, first)
        assert torch.equal(half.data, written)
    codes[1:] = codes[1:].flip(1)
    graph.replay()
    assert torch.equal(graph.result[0], first[0])
    assert torch.equal(half.data[:, :, 0], written[:, :, 0])


@PASSES
@torch.inference_mode()
def test_captured_prompts_over_pages_are_those_over_slots_bit_by_bit(networks, fed):
    """Also when pages lie elsewhere than when they were captured."""
    lm = networks.half
    (whole, _), given = networks.caches(fed.batch + 1, fed.starts), fed.given(lm)
    paged, other = (networks.in_pages(whole, fed.ends, backwards) for backwards in (False, True))
    prefill, capture = FusedPrefill(lm, MAX_LEN), CudaGraphCapture(whole.data.device)
    view = viewed(whole, fed)
    over_slots = capture(lambda: prefill(*given, view, fed.span))  # its memory is the pool's
    expected = over_slots.result.clone()
    slots = torch.arange(fed.batch).cuda()
    # Tables are gathered in the pass, as they are where it is served.
    graph = capture(lambda: prefill(*given, paged.gathered(slots), fed.span))
    assert torch.equal(graph.result, expected)
    move_pages(paged, other)
    graph.replay()
    assert torch.equal(graph.result, expected)
    for slot, (start, end) in enumerate(zip(fed.starts, fed.ends, strict=True)):
        for position in {start, end - 1}:
            page = paged.pages.table[slot, position // PAGE]
            written = paged.data[:, :, page, :, position % PAGE]
            assert torch.equal(written, whole.data[:, :, slot, :, position])
