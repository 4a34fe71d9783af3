"""Relative attention over pages: kernel, plain twin, the encoder's layer and whole streams, compared."""

from __future__ import annotations

import dataclasses
import logging
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from plain_kernels import relative_attention_plain, visible_in_pages
from torch import Tensor

from capture_fake import ComputedAgain
from cosyvoice_runtime.checkpoint.config_flow import EncoderConfig
from cosyvoice_runtime.engine.runtimes import torch_graphs
from cosyvoice_runtime.flow.kernels.choice import fused_solver
from cosyvoice_runtime.flow.kernels.fused_encoder import (
    FusedStack,
    RelativeWeights,
    fused_encoder,
    join,
    relative_attention,
    relative_weights,
)
from cosyvoice_runtime.flow.page_store import PastLayout
from cosyvoice_runtime.flow.torch.call_inputs import BatchShape, PagedInputs
from cosyvoice_runtime.flow.torch.call_pages import PagePlaces
from cosyvoice_runtime.flow.torch.encoder import EncoderLayer, RelativePositions
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.graphed_calls import FEW_PASTS, MOST_PAGES, PASTS, CallBuckets
from cosyvoice_runtime.flow.torch.paged_call import PagedCall
from cosyvoice_runtime.flow.torch.pages import PagedPast, PagePool
from cosyvoice_runtime.flow.torch.stream import FlowStream
from cosyvoice_runtime.flow.voice_flow import TokenSpan
from cosyvoice_runtime.gpu.kernels.tiles import JOIN, RELATIVE, Tile, relative_splits
from small_flow import COSYVOICE3, random_flow, random_prompt, random_tokens
from small_places import random_places, same
from streams import check_captured

HEADS, HEAD_DIM, LAYERS, LAYER = 2, 16, 3, 1
INNER = HEADS * HEAD_DIM
TOLERANCE = 1e-5
"""|difference| / |expected| in float32."""

SMALL = [(5, [0], [5]), (5, [0], [2]), (5, [3], [5]), (10, [2, 0, 1], [4, 10, 7]), (5, [1, 0, 4], [7, 15, 5])]
TRUE = [(25, [2, 0], [25, 13]), (25, [0, 1], [50, 26]), (50, [1, 0], [50, 100]), (50, [3], [31])]
CALLS = pytest.mark.parametrize(("page", "before", "lengths"), SMALL + TRUE)
"""Frames of a page; finished pages and new frames of each utterance."""


def page_places(page: int, before: list[int], lengths: list[int]) -> PagePlaces:
    """Of one row for each utterance."""
    places = random_places(
        before, lengths, page_frames=page, heads=HEADS, head_dim=HEAD_DIM, attentions=LAYERS
    )
    table, stored = places.table[: len(before)], places.page[: len(before)]
    return PagePlaces(places.pages, table, stored, places.frame, places.before, places.unused, places.lengths)


def random_queries(places: PagePlaces) -> Tensor:
    """Beside keys and values, as a layer makes them."""
    packed = torch.randn(places.rows, places.new_frames, 3 * INNER)
    return packed.unflatten(-1, (3, HEADS, HEAD_DIM))[:, :, 0]


def random_weights(places: PagePlaces) -> RelativeWeights:
    page = places.page_frames
    return RelativeWeights(
        torch.randn(HEADS, HEAD_DIM),
        torch.randn(HEADS, HEAD_DIM),
        torch.randn(places.table.shape[1] * page + page - 1, INNER),
    )


def output(places: PagePlaces, splits: int = 1) -> tuple[Tensor, Tensor]:
    rows = places.rows * places.new_frames
    return torch.full((splits, rows, INNER), torch.nan), torch.full((splits, rows, HEADS), torch.nan)


def close(actual: Tensor, expected: Tensor) -> None:
    assert actual.shape == expected.shape
    assert float((actual - expected).norm() / expected.norm()) < TOLERANCE


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(5)


@CALLS
def test_kernel_equals_its_plain_twin(page, before, lengths):
    places = page_places(page, before, lengths)
    queries, weights = random_queries(places), random_weights(places)
    (mixed, shares), (expected, plain_shares) = output(places), output(places)
    relative_attention(queries, weights, places, LAYER, mixed, shares, RELATIVE)
    relative_attention_plain(queries, weights, places, LAYER, expected, plain_shares)
    close(mixed, expected)
    assert shares.isnan().all()  # of one part nobody asks for it


def test_half_precision_stays_near_single():
    places = page_places(25, [2, 0], [25, 13])
    queries, weights = random_queries(places).half(), random_weights(places)
    weights = dataclasses.replace(weights, by_distance=weights.by_distance.half())
    halves = dataclasses.replace(places, pages=places.pages.half())
    (mixed, shares), (expected, plain_shares) = output(places), output(places)
    relative_attention(queries, weights, halves, LAYER, mixed, shares, RELATIVE)
    relative_attention_plain(queries, weights, halves, LAYER, expected, plain_shares)
    assert float((mixed - expected).norm() / expected.norm()) < 1e-3


@pytest.mark.parametrize("splits", [2, 3, 8])
@pytest.mark.parametrize(("page", "before", "lengths"), SMALL)
def test_parts_joined_are_the_whole(page, before, lengths, splits):
    places = page_places(page, before, lengths)
    queries, weights = random_queries(places), random_weights(places)
    parts, whole = output(places, splits), output(places)
    relative_attention(queries, weights, places, LAYER, *parts, RELATIVE)
    relative_attention_plain(queries, weights, places, LAYER, *whole)
    joined = torch.full_like(whole[0][0], torch.nan)
    join(*parts, joined, JOIN)
    close(joined, whole[0][0])


def test_parts_of_the_twin_are_joined_alike():
    places = page_places(5, [2, 0], [5, 3])
    queries, weights = random_queries(places), random_weights(places)
    parts, whole = output(places, 3), output(places)
    relative_attention_plain(queries, weights, places, LAYER, *parts)
    relative_attention_plain(queries, weights, places, LAYER, *whole)
    joined = torch.full_like(whole[0][0], torch.nan)
    join(*parts, joined, Tile(4, 0))
    same(joined, whole[0][0])


def test_pages_that_a_row_does_not_have_are_not_read():
    places = page_places(5, [3, 1], [5, 4])
    queries, weights = random_queries(places), random_weights(places)
    known, there = output(places), places.pages.clone()
    relative_attention(queries, weights, places, LAYER, *known, RELATIVE)
    used = {int(page) for row, first in enumerate(places.unused) for page in places.table[row, first:]}
    unread = [page for page in range(len(there)) if page not in used]
    places.pages[unread] = torch.nan
    again = output(places)
    relative_attention(queries, weights, places, LAYER, *again, RELATIVE)
    assert torch.equal(again[0], known[0])


def test_fewer_distances_than_pages_are_an_error():
    places = page_places(5, [3], [5])
    weights = random_weights(places)
    assert weights.reach(5) == places.table.shape[1]
    fewer = dataclasses.replace(weights, by_distance=weights.by_distance[1:])
    with pytest.raises(ValueError, match="distances of 4 pages"):
        relative_attention(random_queries(places), fewer, places, LAYER, *output(places), RELATIVE)


def random_layers(count: int) -> list[EncoderLayer]:
    config, layout = EncoderConfig(INNER, HEADS, 40, count, 1, 25), PastLayout(HEADS, HEAD_DIM)
    layers = [EncoderLayer(config, layout).requires_grad_(False) for _ in range(count)]
    for layer in layers:
        for parameter in (layer.content_bias, layer.position_bias, layer.position.weight):
            parameter.normal_(0, 1 / math.sqrt(HEAD_DIM))
    return layers


def through(layers: list[EncoderLayer], x: Tensor, places: PagePlaces, fused: bool, splits: int) -> Tensor:
    """Over pages of the call's own."""
    places = dataclasses.replace(places, pages=places.pages.clone())
    weights = [relative_weights(layer, places.page_frames, places.table.shape[1]) for layer in layers]
    past = PagedPast(
        places,
        tails=torch.empty(0),
        new_tails=torch.empty(0),
        lengths=None,
        relative=FusedStack(weights, places, splits=splits) if fused else None,
    )
    keys = places.before * places.page_frames + places.new_frames
    visible = None if fused else visible_in_pages(places)[:, None, :, :keys]
    positions = RelativePositions(INNER)
    for layer in layers:
        x = layer(x, visible, past, positions)
    return x


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize(("page", "before", "lengths"), [*SMALL, TRUE[1]])
def test_fused_layers_equal_the_plain_ones(page, before, lengths, splits):
    """Layers with keys and values of each their own, where new ones are left before they are read."""
    places = page_places(page, before, lengths)
    x, layers = torch.randn(places.rows, places.new_frames, INNER), random_layers(LAYERS)
    fused = through(layers, x, places, fused=True, splits=splits)
    close(fused, through(layers, x, places, fused=False, splits=splits))


@CALLS
def test_twin_equals_the_plain_layer(page, before, lengths):
    places = page_places(page, before, lengths)
    [layer] = random_layers(1)
    x = torch.randn(places.rows, places.new_frames, INNER)
    queries, new = (
        part.unflatten(-1, (-1, HEADS, HEAD_DIM)) for part in layer.qkv(x).split([INNER, 2 * INNER], -1)
    )
    places.store(0, new)
    mixed, shares = output(places)
    weights = relative_weights(layer, page, places.table.shape[1])
    relative_attention_plain(queries[:, :, 0], weights, places, 0, mixed, shares)
    past = PagedPast(
        places,
        tails=torch.empty(0),
        new_tails=torch.empty(0),
        lengths=None,
    )
    keys = places.before * page + places.new_frames
    expected = layer._attention(
        x, visible_in_pages(places)[:, None, :, :keys], past, RelativePositions(INNER)
    )
    close(layer.out(mixed[0]).view_as(expected), expected)


@pytest.mark.parametrize(("programs", "splits"), [(8, 8), (32, 8), (64, 4), (128, 2), (256, 1), (1024, 1)])
def test_few_programs_divide_the_keys(programs, splits):
    assert relative_splits(programs) == splits


def fused_flow(pages: int) -> Flow:
    flow = random_flow(num_steps=1)
    flow.paged_encoder = fused_encoder(flow, pages)
    return flow


@pytest.mark.parametrize(
    ("starts", "counts"), [([100], [25]), ([0, 75], [25, 7]), ([50, 0, 25], [1, 30, 50]), ([0], [3])]
)
@torch.inference_mode()
def test_calls_encode_alike(starts, counts):
    flow = fused_flow(pages=8)
    pool = PagePool(flow, 20)
    spans = [
        TokenSpan(random_prompt(30, row), start, count, np.array(random_tokens(count + 3, row)))
        for row, (start, count) in enumerate(zip(starts, counts, strict=True))
    ]
    shape = dataclasses.replace(BatchShape.of(spans, 25), masked=True)
    held = [pool.acquire(start // 25 + -(-count // 25)) for start, count in zip(starts, counts, strict=True)]
    stored = (pool.token_pages, pool.frame_pages, pool.token_tails, pool.frame_tails)
    for memory in stored:
        memory[2:].normal_()
    before = [memory.clone() for memory in stored]
    results = []
    for masked in (True, False):
        for memory, old in zip(stored, before, strict=True):
            memory.copy_(old)
        started = PagedCall(flow, pool, PagedInputs(flow, shape, spans, held)).start(masked=masked)
        results.append((started.conditions.mu, [memory[2:].clone() for memory in stored]))
    (plain, kept), (fused, also_kept) = results
    for row, count in enumerate(counts):
        close(fused[row, : 2 * count], plain[row, : 2 * count])
    for memory, other in zip(also_kept, kept, strict=True):
        close(memory, other)


def test_no_mask_is_made_where_the_encoder_is_fused(monkeypatch):
    flow = fused_flow(pages=3)
    pool = PagePool(flow, 3)
    made = []
    monkeypatch.setattr(PagedCall, "_visible", lambda self, frames: made.append(frames))
    call = PagedCall(flow, pool, PagedInputs(flow, BatchShape(1, 25, 2)))
    call.start(masked=False)
    assert made == []
    flow.paged_encoder = None
    call.start(masked=False)
    assert made == [50, 25]


def test_captured_calls_with_one_bucket_of_the_past_speak_a_whole_utterance():
    flow = fused_flow(pages=4)
    stream = FlowStream(flow, num_pages=8)
    buckets = CallBuckets(rows=(1,), blocks=(1,), before=(3,))
    assert stream.capture(buckets, ComputedAgain(), fused_solver(flow)) == 1
    check_captured(stream, random_prompt(30, 1), random_tokens(30, 3))


def test_buckets_of_the_past_are_those_that_somebody_pays_for():
    flow = random_flow()
    paid = CallBuckets.up_to(1, any_past=False, starts_too=flow.encodes_any_past)
    few = CallBuckets.up_to(1, any_past=True, starts_too=flow.encodes_any_past)
    flow.paged_encoder = fused_encoder(flow, 1)
    one = CallBuckets.up_to(1, any_past=True, starts_too=flow.encodes_any_past)
    assert (paid.before, few.before, one.before) == (PASTS, FEW_PASTS, PASTS[-1:])
    assert CallBuckets.up_to(1, any_past=False, starts_too=flow.encodes_any_past).before == PASTS
    assert {each.before[-1] + each.blocks[-1] for each in (paid, few, one)} == {MOST_PAGES}


@pytest.mark.parametrize(("kernels", "fused"), [("auto", True), ("fused", True), ("plain", False)])
def test_the_settings_choose(monkeypatch, caplog, kernels, fused):
    monkeypatch.setattr(torch_graphs, "encoder_obstacle", lambda *_: None)
    caplog.set_level(logging.INFO)
    flow = random_flow()
    torch_graphs._fuse_encoder(flow, SimpleNamespace(kernels=kernels))
    assert (flow.paged_encoder is not None) == flow.encodes_any_past == fused
    way = "fused" if fused else "plain (asked for)"
    assert f"attention of the flow's encoder on cpu: {way}" in caplog.text


def test_an_encoder_that_attends_to_nothing_needs_no_kernel(caplog):
    caplog.set_level(logging.INFO)
    flow = random_flow(config=COSYVOICE3)
    torch_graphs._fuse_encoder(flow, SimpleNamespace(kernels="auto"))
    assert flow.paged_encoder is None
    assert flow.encodes_any_past
    assert caplog.text == ""
