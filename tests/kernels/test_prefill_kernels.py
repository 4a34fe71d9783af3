"""Each kernel of the speech LM's prompts alone against its plain twin, and all of them as a pass."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from plain_lm_kernels import (
    prefill_attention_plain,
    prefill_embed_plain,
    prefill_gated_plain,
    prefill_heads_plain,
    prefill_residual_plain,
)
from torch import Tensor

from capture_fake import play_back
from cosyvoice_runtime.flow.page_store import FIRST_PAGE, WASTE_PAGE
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.kernels.prefill import (
    CodeTables,
    FusedPrefill,
    prefill_attention,
    prefill_embed,
    prefill_gated,
    prefill_heads,
    prefill_residual,
)
from cosyvoice_runtime.lm.torch import prefill_graphs
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
from cosyvoice_runtime.lm.torch.device_steps import CapturedPasses
from cosyvoice_runtime.lm.torch.kv_cache import KVCache, PromptPages
from cosyvoice_runtime.lm.torch.network import RotaryTable, SpeechLM
from making.architecture import TINY
from small_caches import MAX_LEN, own_slots, random_layer, shared_pages

CHANNELS, HEADS, KV_HEADS, HEAD_DIM, EPSILON = 48, 6, 2, 16, 1e-6
WIDTH = HEADS * HEAD_DIM
CONFIG = dataclasses.replace(TINY.speech_lm, text_vocab_size=80, speech_tokens=70)
CODES = CONFIG.text_vocab_size + 2 + CONFIG.speech_tokens
PLACES = pytest.mark.parametrize(
    ("starts", "lengths", "positions"),
    [
        ([0], [1], 1),
        ([0], [17], 24),
        ([0, 0, 0], [5, 24, 1], 24),
        ([37, 16, 31], [7, 16, 1], 16),
        ([48, 62, 64], [16, 2, 1], 16),  # padding goes beyond the last position; a full slot has none
    ],
    ids=["alone", "padded", "uneven", "going on", "at the end"],
)
"""Of prompts; and how far each is padded."""


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(6)


def same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=2e-5)


def apart(values: list[int]) -> Tensor:
    """As a column of a table lies."""
    return torch.tensor([[value, 0, 0] for value in values])[:, 0]


def prompt_places(
    starts: list[int], lengths: list[int], page: int = 16, pageless: tuple[int, ...] = ()
) -> PromptPages:
    """Random keys and values in pages that lie anyhow, as many as each prompt needs.

    Args:
        pageless: prompts without pages for what they are fed, which is written into the page for waste.
    """
    held = [
        -(-min(start + length * (row not in pageless), MAX_LEN) // page)
        for row, (start, length) in enumerate(zip(starts, lengths, strict=True))
    ]
    layer = random_layer(held, page, KV_HEADS, HEAD_DIM)
    return PromptPages(layer.keys, layer.values, layer.tables, apart(starts), apart(lengths), MAX_LEN)


def copied(places: PromptPages) -> PromptPages:
    return dataclasses.replace(places, keys=places.keys.clone(), values=places.values.clone())


def random_heads(batch: int, positions: int) -> Tensor:
    return torch.randn(batch, positions, HEADS + 2 * KV_HEADS, HEAD_DIM)


def rotation() -> RotaryTable:
    return RotaryTable.of(MAX_LEN, HEAD_DIM, 1e4, torch.device("cpu"))


def test_embedding_of_rows_of_all_tables():
    tables = CodeTables(*(torch.randn(rows, CHANNELS) for rows in (9, 2, 12)))
    codes = torch.tensor([[0, 8, 9, 10, 11, 0], [22, 16, 10, 4, 9, 0]])[:, :5]
    gain, x = torch.randn(CHANNELS), torch.full((2, 10, CHANNELS), torch.nan)
    normed = x.clone()
    prefill_embed(codes, tables, gain, EPSILON, x[0], normed[0])
    prefill_embed_plain(codes, tables, gain, EPSILON, x[1], normed[1])
    assert torch.equal(x[0], x[1])
    same(normed[0], normed[1])


@pytest.mark.parametrize("rows", [1, 7])
def test_product_on_the_residual(rows):
    product, gain, x = torch.randn(rows, CHANNELS), torch.randn(CHANNELS), torch.randn(rows, CHANNELS)
    both, normed = [x.clone(), x.clone()], torch.full((2, rows, CHANNELS), torch.nan)
    prefill_residual(product, gain, EPSILON, both[0], normed[0])
    prefill_residual_plain(product, gain, EPSILON, both[1], normed[1])
    assert torch.equal(both[0], both[1])
    same(normed[0], normed[1])


@pytest.mark.parametrize("size", [80, 1100])
def test_gate(size):
    gate_up, inner = 5 * torch.randn(3, 2 * size), torch.full((2, 3, size), torch.nan)
    gate_up[0, 0], gate_up[0, 1] = 200.0, -200.0
    prefill_gated(gate_up, inner[0])
    prefill_gated_plain(gate_up, inner[1])
    same(inner[0], inner[1])


@pytest.mark.parametrize("page", [7, 16, MAX_LEN])
@PLACES
def test_queries_keys_and_values_find_their_places(starts, lengths, positions, page):
    places, packed = prompt_places(starts, lengths, page), random_heads(len(starts), positions)
    bias = torch.randn(packed.shape[2] * HEAD_DIM)
    other, expected = copied(places), packed.clone()
    before = copied(places)
    prefill_heads(packed, bias, rotation(), places)
    prefill_heads_plain(expected, bias, rotation(), other)
    same(packed, expected)
    same(places.keys, other.keys)
    same(places.values, other.values)
    fed = sum(min(length, MAX_LEN - start) for start, length in zip(starts, lengths, strict=True))
    for part, old in ((places.keys, before.keys), (places.values, before.values)):
        assert int((part != old).any(dim=3).any(dim=1).sum()) == fed


def test_a_prompt_without_pages_writes_into_that_for_waste():
    """It has nothing to feed, and stands at the first position of a page that it was not given."""
    places = prompt_places([0, 32], [5, 1], pageless=(1,))
    before, packed = copied(places), random_heads(2, 16)
    prefill_heads(packed, torch.randn(packed.shape[2] * HEAD_DIM), rotation(), places)
    for part, old in ((places.keys, before.keys), (places.values, before.values)):
        written = {(page, row) for page, _, row, _ in (part != old).nonzero().tolist()}
        first = places.tables.read[0, 0].item()
        assert written == {(WASTE_PAGE, 0), *((first, row) for row in range(5))}


@pytest.mark.parametrize("page", [7, 16, MAX_LEN])
@PLACES
def test_attention_to_pages(starts, lengths, positions, page):
    places, packed = prompt_places(starts, lengths, page), random_heads(len(starts), positions)
    mixed = torch.full((2, len(starts), positions, WIDTH // HEAD_DIM, HEAD_DIM), torch.nan)
    prefill_attention(packed, places, mixed[0])
    prefill_attention_plain(packed, places, mixed[1])
    same(mixed[0], mixed[1])


def test_attention_sees_nothing_behind_what_is_fed():
    places, packed = prompt_places([20, 0], [3, 2]), random_heads(2, 16)
    mixed = torch.zeros(2, 2, 16, WIDTH // HEAD_DIM, HEAD_DIM)
    prefill_attention(packed, places, mixed[0])
    for part in (places.keys, places.values):
        pages = places.tables.read
        part[pages[0, 1], :, 7:] = part[pages[1, 0], :, 2:] = part[WASTE_PAGE] = torch.nan
        part[[page for page in range(len(part)) if page not in pages]] = torch.nan
    prefill_attention(packed, places, mixed[1])
    assert torch.equal(mixed[0], mixed[1])


@pytest.fixture(scope="module")
def lm() -> SpeechLM:
    torch.manual_seed(7)
    network = SpeechLM(CONFIG).requires_grad_(False)
    for module in network.modules():
        if isinstance(module, torch.nn.RMSNorm):
            torch.nn.init.normal_(module.weight, 1.0)
    return network


def kept(cache: KVCache, slot: int, positions: int) -> Tensor:
    """Keys and values of a slot's first positions."""
    pages = cache.tables.read[slot].long()
    return cache.data[:, :, pages].transpose(2, 3).flatten(3, 4)[:, :, :, :positions]


@pytest.mark.parametrize("opened_cache", [own_slots, shared_pages])
@pytest.mark.parametrize(
    ("starts", "lengths", "positions", "span"),
    [
        ([0], [16], 16, None),
        ([0, 0, 0], [11, 24, 1], 24, None),
        ([9], [5], 16, 48),
        ([30, 0, 47], [16, 7, 1], 16, MAX_LEN),
    ],
    ids=["alone", "uneven", "goes on", "go on"],
)
@torch.inference_mode()
def test_fused_prompts_are_those_of_the_network(lm, starts, lengths, positions, span, opened_cache):
    """And so are the steps behind them."""
    batch = len(starts)
    caches = [opened_cache(CONFIG, batch + 2) for _ in range(2)]
    caches[0].data[:, :, FIRST_PAGE:].normal_()
    caches[1].data.copy_(caches[0].data)
    codes, own = torch.randint(CODES, (batch, positions)), torch.arange(batch).flip(0) + 1
    given = codes, apart(lengths), apart(starts)
    views = [cache.gathered(own) for cache in caches]
    same(FusedPrefill(lm, MAX_LEN)(*given, views[0], span), lm.prefill_codes(*given, views[1], span))
    ends = [start + length for start, length in zip(starts, lengths, strict=True)]
    for slot, end in zip(own.tolist(), ends, strict=True):
        same(kept(caches[0], slot, end), kept(caches[1], slot, end))
    tokens = torch.randint(CONFIG.speech_tokens, (batch,))
    same(*(lm.decode_step(tokens, torch.tensor(ends), view, MAX_LEN) for view in views))


@pytest.mark.parametrize("span", [None, MAX_LEN])
@torch.inference_mode()
def test_a_prompt_gives_the_same_bits_whoever_is_beside_it(lm, span):
    codes, lengths, starts = torch.randint(CODES, (2, 16)), torch.tensor([9, 16]), torch.tensor([0, 0])
    fused, found = FusedPrefill(lm, MAX_LEN), []
    for neighbour in (codes[1], codes[1], codes[1].flip(0)):
        view = own_slots(CONFIG, 2).view(0, 2)
        found.append(fused(torch.stack([codes[0], neighbour]), lengths, starts, view, span))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0][0], found[2][0])
    assert not torch.equal(found[0][1], found[2][1])


@pytest.mark.parametrize("span", [None, MAX_LEN])
@torch.inference_mode()
def test_in_half_precision_it_is_nearer_to_float32_than_the_network(lm, span):
    """In float16: the interpreter multiplies no bfloat16, and cuts its digits off where a GPU rounds."""
    half, exact = (SpeechLM(CONFIG).requires_grad_(False) for _ in range(2))
    half.load_state_dict(lm.state_dict())
    half = half.half()
    exact.load_state_dict(half.state_dict())
    given = torch.randint(CODES, (2, 16)), torch.tensor([16, 13]), torch.tensor([0, 0])
    expected = exact.prefill_codes(*given, own_slots(CONFIG, 2).view(0, 2), span)
    far = []
    for feed in (half.prefill_codes, FusedPrefill(half, MAX_LEN)):
        view = KVCache(CONFIG, 2, MAX_LEN, dtype=torch.float16).view(0, 2)
        far.append(float((feed(*given, view, span) - expected).norm() / expected.norm()))
    assert far[1] < far[0] < 5e-3


@torch.inference_mode()
def test_captured_prompts_are_fed_by_it(lm, monkeypatch):
    """And the speech is that behind the network's own passes."""
    monkeypatch.setattr(prefill_graphs, "PROMPT_SIZES", (16,))
    monkeypatch.setattr(prefill_graphs, "TEXT_SPANS", ())
    fused, passes, spoken = FusedPrefill(lm, 32), [], []

    def counted(codes, lengths, starts, view, span):
        passes.append(span)
        return fused(codes, lengths, starts, view, span)

    for feed in (None, counted):
        decoder = BatchDecoder(lm, 1, 32, capture=play_back, passes=CapturedPasses(prefill=feed))
        made = len(passes)
        generation = decoder.add(Prompt([4, 2, 7]), SamplingOptions(seed=3, min_tokens=4, max_tokens=4))
        while decoder.busy:
            decoder.step()
        spoken.append(generation.tokens)
    assert len(spoken[0]) == 4
    assert spoken[0] == spoken[1]
    assert len(passes) > made
