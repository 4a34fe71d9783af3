"""Each kernel of the speech LM's step alone against its plain twin, and all of them as a step."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from plain_lm_kernels import (
    normed_of,
    step_attention_plain,
    step_embed_plain,
    step_gated_plain,
    step_head_plain,
    step_qkv_plain,
    step_residual_plain,
    take_residual,
)
from torch import Tensor

from cosyvoice_runtime.flow.page_store import FIRST_PAGE, WASTE_PAGE
from cosyvoice_runtime.gpu.kernels.rows import HOPPER
from cosyvoice_runtime.gpu.kernels.step_tiles import ONE, TWO, StepTile, StepTiles
from cosyvoice_runtime.lm.cache import PAGE
from cosyvoice_runtime.lm.kernels.fused_step import FusedStep, step_attention
from cosyvoice_runtime.lm.kernels.step_normed import step_gated, step_head, step_qkv
from cosyvoice_runtime.lm.kernels.step_residual import SHRINK, Scaled, step_embed, step_residual
from cosyvoice_runtime.lm.torch.kv_cache import CacheLayer, KVCache
from cosyvoice_runtime.lm.torch.network import RotaryTable, SpeechLM
from making.architecture import TINY
from small_caches import MAX_LEN, own_slots, random_layer, shared_pages

CHANNELS, HEADS, KV_HEADS, HEAD_DIM = 48, 6, 2, 16
WIDTH = HEADS * HEAD_DIM
PARTS, EPSILON = 6, 1e-6
BATCHES = pytest.mark.parametrize(
    ("positions", "columns"),
    [
        ([0], 1),
        ([37], 1),
        ([37, 4], 2),
        ([0, 15, 16], 4),
        ([0, 15, 16], 16),
        ([63, 1, 32, 0], 16),
        ([5 * slot % 60 for slot in range(19)], 16),
    ],
    ids=["empty past", "alone", "two", "two and one", "edges of blocks", "full", "two tiles"],
)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(5)


def same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=2e-5)


def scaled_of(batch: int) -> Scaled:
    """What a residual is on its way through a norm."""
    residual, gain = torch.randn(batch, CHANNELS), torch.randn(CHANNELS)
    scaled = Scaled.empty(residual, torch.float32, CHANNELS // PARTS)
    take_residual(scaled, residual, gain)
    return scaled


def cache_layer(positions: list[int], page: int = 32, idle: tuple[int, ...] = ()) -> CacheLayer:
    """Random keys and values in pages that lie anyhow, as many as each sequence has.

    Args:
        idle: sequences without a page for their position, which is written into the page for waste.
    """
    held = [position // page + (slot not in idle) for slot, position in enumerate(positions)]
    layer = random_layer(held, page, KV_HEADS, HEAD_DIM)
    return CacheLayer(layer.keys, layer.values, layer.tables, torch.tensor(positions))


def copied(cache: CacheLayer) -> CacheLayer:
    return dataclasses.replace(cache, keys=cache.keys.clone(), values=cache.values.clone())


def test_scaled_residual_becomes_the_norm_of_it():
    residual, norm = torch.randn(3, CHANNELS), torch.nn.RMSNorm(CHANNELS, EPSILON)
    torch.nn.init.normal_(norm.weight)
    scaled = Scaled.empty(residual, torch.float32, 8)
    take_residual(scaled, residual, norm.weight.detach())
    same(normed_of(scaled, EPSILON), norm(residual).detach())


@pytest.mark.parametrize("batch", [1, 5])
def test_embedding(batch):
    tokens, table, gain = torch.randint(30, (batch,)), torch.randn(30, CHANNELS), torch.randn(CHANNELS)
    x = torch.full((2, batch, CHANNELS), torch.nan)
    scaled = [Scaled.empty(x[0], torch.float32, 8) for _ in range(2)]
    step_embed(tokens, table, gain, x[0], scaled[0])
    step_embed_plain(tokens, table, gain, x[1], scaled[1])
    same(x[0], x[1])
    same(scaled[0].values, scaled[1].values)
    same(scaled[0].squares, scaled[1].squares)


@pytest.mark.parametrize(
    ("piece", "stages", "page"), [(32, 0, 16), (64, 0, MAX_LEN), (16, 2, 32), (32, 3, 7)]
)
@BATCHES
def test_queries_keys_and_values(positions, columns, piece, stages, page):
    batch = len(positions)
    scaled, rotation = scaled_of(batch), RotaryTable.of(MAX_LEN, HEAD_DIM, 1e4, torch.device("cpu"))
    rows = WIDTH + 2 * KV_HEADS * HEAD_DIM
    weight, bias = torch.randn(rows, CHANNELS), torch.randn(rows)
    cache = cache_layer(positions, page)
    expected = copied(cache)
    queries = torch.full((2, batch, WIDTH), torch.nan)
    tile = StepTile(8 if stages else 4, max(columns, 16) if stages else columns, piece, 2, stages=stages)
    step_qkv(scaled, weight, bias, rotation, EPSILON, queries[0], cache, tile)
    step_qkv_plain(scaled, weight, bias, rotation, EPSILON, queries[1], expected)
    same(queries[0], queries[1])
    same(cache.keys, expected.keys)
    same(cache.values, expected.values)


def joined(mixed: Tensor, shares: Tensor) -> Tensor:
    """What the parts of attention are together."""
    x = torch.zeros(mixed.shape[1], WIDTH)
    scaled = Scaled.empty(x, torch.float32, WIDTH)
    step_residual_plain(mixed, shares, torch.eye(WIDTH), torch.ones(WIDTH), x, scaled)
    return x


def test_a_sequence_without_a_page_writes_into_that_for_waste():
    """It stands at the first position of a page that it was not given."""
    scaled, rotation = scaled_of(3), RotaryTable.of(MAX_LEN, HEAD_DIM, 1e4, torch.device("cpu"))
    rows = WIDTH + 2 * KV_HEADS * HEAD_DIM
    cache = cache_layer([9, 32, 40], page=16, idle=(1,))
    before = copied(cache)
    weight, bias, queries = torch.randn(rows, CHANNELS), torch.randn(rows), torch.empty(3, WIDTH)
    step_qkv(scaled, weight, bias, rotation, EPSILON, queries, cache, StepTile(4, 16, 32, 2))
    for part, old in ((cache.keys, before.keys), (cache.values, before.values)):
        written = [[page, row] for page, _, row, _ in (part != old).nonzero().tolist()]
        pages = cache.tables.read[0, 0].item(), WASTE_PAGE, cache.tables.read[2, 2].item()
        places = zip(pages, (9, 0, 8), strict=True)
        assert sorted({tuple(place) for place in written}) == sorted(places)


@pytest.mark.parametrize("page", [16, 32, MAX_LEN])
@pytest.mark.parametrize("splits", [1, 4])
@BATCHES
def test_attention_over_the_cache(positions, columns, splits, page):
    cache = cache_layer(positions, page)
    queries = torch.randn(len(positions), WIDTH)
    mixed, shares = torch.zeros(splits, *queries.shape), torch.zeros(splits, len(positions), HEADS)
    step_attention(queries, cache, mixed, shares, 16, 4)
    expected = torch.empty_like(mixed[:1]), torch.empty_like(shares[:1])
    step_attention_plain(queries, cache, *expected)
    same(joined(mixed, shares), expected[0][0] / SHRINK)


def test_attention_does_not_see_what_lies_behind_the_position():
    cache, queries = cache_layer([20, 0]), torch.randn(2, WIDTH)
    mixed, shares = torch.zeros(2, 4, 2, WIDTH), torch.zeros(2, 4, 2, HEADS)
    step_attention(queries, cache, mixed[0], shares[0], 16, 4)
    for part in (cache.keys, cache.values):
        pages = cache.tables.read
        part[pages[0, 0], :, 21:] = part[pages[1, 0], :, 1:] = part[WASTE_PAGE] = torch.nan
        part[[page for page in range(len(part)) if page not in pages]] = torch.nan
    step_attention(queries, cache, mixed[1], shares[1], 16, 4)
    assert torch.equal(mixed[0], mixed[1])
    assert torch.equal(shares[0], shares[1])


@pytest.mark.parametrize(
    ("batch", "tile"),
    [
        (1, StepTile(8, 1, 64, 2, ahead=1)),
        (1, StepTile(16, 1, 32, 1)),
        (2, StepTile(16, 2, 32, 1)),
        (3, StepTile(8, 4, 64, 2, ahead=1)),
        (5, StepTile(8, 16, 64, 2, ahead=1)),
        (19, StepTile(16, 16, 32, 2, ahead=2)),
        (1, StepTile(16, 16, 32, stages=2)),
        (19, StepTile(16, 32, 64, stages=3)),
    ],
)
@pytest.mark.parametrize("parts", [1, 3])
def test_linear_on_the_residual(batch, tile, parts):
    if tile.stages:
        parts = 1
    inputs, shares = torch.randn(parts, batch, WIDTH) * SHRINK, torch.randn(parts, batch, HEADS)
    if parts > 1:
        shares[1] = -torch.inf  # a part without keys
    weight, gain, x = torch.randn(CHANNELS, WIDTH), torch.randn(CHANNELS), torch.randn(batch, CHANNELS)
    both = [x.clone(), x.clone()]
    scaled = [Scaled.empty(x, torch.float32, tile.rows) for _ in both]
    step_residual(inputs, shares, weight, gain, both[0], scaled[0], tile)
    step_residual_plain(inputs, shares, weight, gain, both[1], scaled[1])
    same(both[0], both[1])
    same(*(normed_of(each, EPSILON) for each in scaled))


@pytest.mark.parametrize(
    ("batch", "tile"),
    [
        (1, StepTile(8, 1, 32, 1)),
        (2, StepTile(8, 2, 32, 1)),
        (5, StepTile(8, 4, 64, 2)),
        (5, StepTile(16, 16, 64, 4)),
        (19, StepTile(8, 16, 32, 2)),
        (19, StepTile(16, 16, 16, stages=2)),
        (19, StepTile(16, 32, 32, stages=3)),
    ],
)
def test_gated_layer(batch, tile):
    scaled, weight = scaled_of(batch), torch.randn(2 * 80, CHANNELS)
    inner = torch.full((2, batch, 80), torch.nan)
    step_gated(scaled, weight, EPSILON, inner[0], tile)
    step_gated_plain(scaled, weight, EPSILON, inner[1])
    same(inner[0], inner[1])


@pytest.mark.parametrize(
    ("batch", "tile"),
    [
        (1, StepTile(8, 1, 32, 1)),
        (2, StepTile(8, 2, 32, 1)),
        (5, StepTile(8, 4, 64, 2)),
        (5, StepTile(16, 16, 64, 4)),
        (19, StepTile(8, 16, 32, 2)),
        (19, StepTile(16, 16, 16, stages=2)),
        (19, StepTile(16, 32, 32, stages=3)),
    ],
)
def test_head_of_a_vocabulary_that_tiles_do_not_divide(batch, tile):
    scaled, weight, bias = scaled_of(batch), torch.randn(37, CHANNELS), torch.randn(37)
    logits = torch.full((2, batch, 37), torch.nan)
    step_head(scaled, weight, bias, EPSILON, logits[0], tile)
    step_head_plain(scaled, weight, bias, EPSILON, logits[1])
    same(logits[0], logits[1])


def test_keys_that_lie_in_two_pages_are_refused():
    cache, queries = cache_layer([20], page=24), torch.randn(1, WIDTH)
    with pytest.raises(ValueError, match="16 keys at a time don't divide pages of 24 positions"):
        step_attention(queries, cache, torch.zeros(1, 1, WIDTH), torch.zeros(1, 1, HEADS), 16, 4)


@pytest.mark.parametrize("batch", [1, 2, 16, 300])
def test_pages_of_the_cache_hold_whole_blocks_of_keys(batch):
    assert PAGE % HOPPER.step_tiles(batch).keys == 0


def test_tiles_and_parts_follow_the_number_of_sequences():
    assert HOPPER.step_tiles(1) is ONE
    assert HOPPER.step_tiles(2) is TWO
    assert HOPPER.step_tiles(3) is HOPPER.step_tiles(16)
    assert HOPPER.step_tiles(17) is HOPPER.step_tiles(32)
    assert HOPPER.step_tiles(33) is HOPPER.step_tiles(300)
    assert [ONE.splits(1, span) for span in (16, 256, 4096)] == [1, 8, 16]
    assert [HOPPER.step_tiles(batch).splits(batch, 512) for batch in (2, 3, 16, 300)] == [16, 2, 2, 1]


@pytest.mark.parametrize("batch", [2, 16, 17, 32, 33, 64, 300])
def test_on_a_part_of_the_gpu_weights_are_streamed_past_all_sequences_at_once(batch):
    tiles = HOPPER.step_tiles(batch, on_part=True)
    for tile in (tiles.qkv, tiles.out, tiles.gated, tiles.down, tiles.head):
        assert tile.stages
        assert tile.columns >= min(batch, 64)
    assert tiles.splits(batch, 4096) == 1  # a streamed product has no parts to join


SMALL = StepTiles(
    qkv=StepTile(4, 16, 32, 2),
    out=StepTile(16, 16, 32, 2),
    gated=StepTile(32, 16, 64, 2),
    down=StepTile(16, 16, 64, 2, ahead=2),
    head=StepTile(512, 16, 64, 2),
    keys=16,
)


def small(columns: int) -> StepTiles:
    """For so many sequences of a program."""
    parts = ("qkv", "out", "gated", "down", "head")
    return dataclasses.replace(
        SMALL, **{name: dataclasses.replace(getattr(SMALL, name), columns=columns) for name in parts}
    )


SMALL_ALONE = small(1)


@pytest.mark.parametrize("opened_cache", [own_slots, shared_pages])
@pytest.mark.parametrize(
    ("positions", "tiles"),
    [([40], SMALL_ALONE), ([40, 33], small(2)), ([40, 0, 33], small(2)), ([40, 0, 33], SMALL)],
)
@torch.inference_mode()
def test_fused_steps_are_steps_of_the_network(positions, tiles, opened_cache):
    config, batch = TINY.speech_lm, len(positions)
    lm = SpeechLM(config).requires_grad_(False)
    for module in lm.modules():
        if isinstance(module, torch.nn.RMSNorm):
            torch.nn.init.normal_(module.weight, 1.0)
    caches = [opened_cache(config, batch + 2) for _ in range(2)]
    caches[0].data[:, :, FIRST_PAGE:].normal_()
    caches[1].data.copy_(caches[0].data)
    fused, plain = FusedStep(lm, MAX_LEN), lm.decode_step
    for turn in range(2):
        tokens, places = torch.randint(config.speech_tokens, (batch,)), torch.tensor(positions) + turn
        views = [cache.view(1, 1 + batch) for cache in caches]
        same(fused(tokens, places, views[0], 48, tiles), plain(tokens, places, views[1], 48))
    same(caches[0].data, caches[1].data)


@pytest.mark.parametrize("on_part", [False, True])
@pytest.mark.parametrize("batch", [2, 17, 33])
@torch.inference_mode()
def test_tiles_of_every_batch_compute_all_of_a_small_network(batch, on_part):
    config = TINY.speech_lm
    lm = SpeechLM(config).requires_grad_(False)
    caches = [KVCache(config, batch, MAX_LEN) for _ in range(2)]
    tokens, places = torch.randint(config.speech_tokens, (batch,)), torch.arange(batch) % 40
    tiles = dataclasses.replace(HOPPER.step_tiles(batch, on_part), keys=16)
    fused = FusedStep(lm, MAX_LEN)
    views = [cache.view(0, batch) for cache in caches]
    same(fused(tokens, places, views[0], 48, tiles), lm.decode_step(tokens, places, views[1], 48))


@torch.inference_mode()
def test_two_sequences_are_those_that_each_is_alone():
    """To the bits, for as many parts of their keys."""
    config = TINY.speech_lm
    lm = SpeechLM(config).requires_grad_(False)
    cache = KVCache(config, 2, MAX_LEN)
    cache.data.normal_()
    tokens, places = torch.tensor([7, 3]), torch.tensor([40, 11])
    both, alone = (
        dataclasses.replace(small(2), split_programs=4),
        dataclasses.replace(small(1), split_programs=2),
    )
    fused = FusedStep(lm, MAX_LEN)
    together = fused(tokens, places, cache.view(0, 2), 48, both).clone()
    for slot in range(2):
        mine = slice(slot, slot + 1)
        logits = fused(tokens[mine], places[mine], cache.view(slot, slot + 1), 48, alone)
        assert torch.equal(logits[0], together[slot])


@torch.inference_mode()
def test_head_without_a_bias():
    config = TINY.speech_lm
    lm = SpeechLM(config).requires_grad_(False)
    lm.head.bias = None
    cache = KVCache(config, 1, MAX_LEN)
    tokens, places = torch.tensor([7]), torch.tensor([0])
    actual = FusedStep(lm, MAX_LEN)(tokens, places, cache.view(0, 1), 16, SMALL_ALONE)
    same(actual, lm.decode_step(tokens, places, cache.view(0, 1), 16))
