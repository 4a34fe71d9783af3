"""Rows of a step or of prompts with their own adapters are those of networks that have these folded in."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.lm_rows import PROJECTIONS
from cosyvoice_runtime.flow.page_store import FIRST_PAGE
from cosyvoice_runtime.gpu.kernels.rows import HOPPER
from cosyvoice_runtime.gpu.kernels.step_tiles import StepTile, StepTiles
from cosyvoice_runtime.lm.kernels.fused_step import FusedStep
from cosyvoice_runtime.lm.kernels.prefill import FusedPrefill
from cosyvoice_runtime.lm.kernels.step_adapters import step_addend
from cosyvoice_runtime.lm.torch.adapters import AdaptedLinear, AdapterStack
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM
from making.architecture import TINY
from small_caches import MAX_LEN, own_slots, shared_pages

CONFIG = TINY.speech_lm
ADAPTERS, RANK = 3, 16
SMALL = StepTiles(
    qkv=StepTile(8, 16, 64, 2),
    out=StepTile(16, 16, 32, 2),
    gated=StepTile(32, 16, 64, 2),
    down=StepTile(16, 16, 64, 2, ahead=2),
    head=StepTile(512, 16, 64, 2),
    keys=16,
)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(5)


def same(actual: Tensor, expected: Tensor, tolerance: float = 2e-5) -> None:
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


def random_stack(inputs: int, sizes: tuple[int, ...], rank: int = RANK) -> AdapterStack:
    """Number 0 is zeros; the others are as large as a trained one may be."""
    down = torch.randn(1 + ADAPTERS, len(sizes) * rank, inputs) / inputs**0.5
    up = torch.randn(1 + ADAPTERS, sum(sizes), rank) / rank**0.5
    down[0] = up[0] = 0
    return AdapterStack(down, up, sizes)


def folded(stack: AdapterStack, number: int) -> Tensor:
    """The addend of the layer's weight, ``[outputs, inputs]``."""
    down = stack.down[number].split(stack.rank)
    up = stack.up[number].split(stack.sizes)
    return torch.cat([wide @ narrow for wide, narrow in zip(up, down, strict=True)])


@torch.inference_mode()
def networks(modules: tuple[str, ...]) -> list[SpeechLM]:
    """One with adapters of these layers, and for each number one with it folded in."""
    lm = SpeechLM(CONFIG).requires_grad_(False)
    for module in lm.modules():
        if isinstance(module, torch.nn.RMSNorm):
            torch.nn.init.normal_(module.weight, 1.0)
    others = []
    for layer in lm.layers:
        for name in modules:
            linear = layer.get_submodule(name)
            assert isinstance(linear, AdaptedLinear)
            linear.stack = random_stack(linear.in_features, linear.sizes)
    for number in range(1 + ADAPTERS):
        other = SpeechLM(CONFIG).requires_grad_(False)
        other.load_state_dict(lm.state_dict())
        for layer, adapted in zip(other.layers, lm.layers, strict=True):
            for name in modules:
                stack = adapted.get_submodule(name).stack
                layer.get_submodule(name).weight += folded(stack, number)
        others.append(other)
    return [lm, *others]


@pytest.fixture(scope="module")
def all_adapted() -> list[SpeechLM]:
    torch.manual_seed(5)
    return networks(tuple(PROJECTIONS))


def numbered(cache: KVCache, numbers: list[int]) -> KVCache:
    cache.serve_adapters()
    cache.adapters[:] = numbers
    cache.prepare()
    return cache


def filled(opened_cache, numbers: list[int]) -> list[KVCache]:
    caches = [numbered(opened_cache(CONFIG, len(numbers)), numbers) for _ in range(2)]
    caches[0].data[:, :, FIRST_PAGE:].normal_()
    caches[1].data.copy_(caches[0].data)
    return caches


@pytest.mark.parametrize(
    ("inputs", "sizes", "rank"),
    [(48, (96, 32, 32), 16), (300, (64,), 64), (1100, (32, 32), 32)],
    ids=["qkv", "one", "wide"],
)
@pytest.mark.parametrize(
    "numbers",
    [[1], [0], [3, 0, 1], [2] * 17 + [0, 1, 2, 3], [0] * 33 + [2, 1]],
    ids=lambda numbers: f"{len(numbers)} of {set(numbers)}",
)
def test_addend_of_a_layer(numbers, inputs, sizes, rank):
    stack, x = random_stack(inputs, sizes, rank), torch.randn(len(numbers), inputs)
    added = step_addend(stack, torch.tensor(numbers, dtype=torch.int32), x[None], torch.empty(1, 1, 1))
    expected = torch.stack([folded(stack, number) @ row for number, row in zip(numbers, x, strict=True)])
    same(added, expected)
    same(stack.addend(x[:, None], torch.tensor(numbers))[:, 0], expected)


def test_addend_of_joined_parts_of_attention():
    heads, numbers = 6, torch.tensor([1, 0, 2, 1], dtype=torch.int32)
    stack = random_stack(96, (48,))
    inputs, shares = torch.randn(3, 4, 96), torch.randn(3, 4, heads)
    shares[1] = -torch.inf  # a part without keys
    weights = torch.softmax(shares * torch.log(torch.tensor(2.0)), 0).repeat_interleave(16, 2)
    x = (inputs * weights).sum(0)
    expected = torch.stack([folded(stack, number) @ row for number, row in zip(numbers, x, strict=True)])
    same(step_addend(stack, numbers, inputs, shares), expected)


@pytest.mark.parametrize("opened_cache", [own_slots, shared_pages])
@pytest.mark.parametrize("numbers", [[2], [1, 2], [3, 0, 1, 3, 2]])
@torch.inference_mode()
def test_each_row_of_a_step_is_that_of_its_folded_network(all_adapted, numbers, opened_cache):
    lm, *others = all_adapted
    batch, caches = len(numbers), filled(opened_cache, numbers)
    tokens = torch.randint(CONFIG.speech_tokens, (batch,))
    places = torch.tensor([40, 0, 33, 7, 21])[:batch]
    fused = FusedStep(lm, MAX_LEN)(tokens, places, caches[0].view(0, batch), 48, SMALL)
    plain = lm.decode_step(tokens, places, caches[1].view(0, batch), 48)
    same(fused, plain, 1e-4)
    same(caches[0].data, caches[1].data, 1e-4)
    for slot, number in enumerate(numbers):
        mine = slice(slot, slot + 1)
        alone = others[number].decode_step(tokens[mine], places[mine], caches[0].view(slot, slot + 1), 48)
        same(fused[mine], alone, 1e-4)


@pytest.mark.parametrize(("batch", "on_part"), [(17, False), (17, True), (33, False)])
@torch.inference_mode()
def test_tiles_of_large_batches_add_what_adapters_do(all_adapted, batch, on_part):
    lm, *_ = all_adapted
    caches = filled(own_slots, [slot % 4 for slot in range(batch)])
    tokens, places = torch.randint(CONFIG.speech_tokens, (batch,)), torch.arange(batch) % 40
    tiles = dataclasses.replace(HOPPER.step_tiles(batch, on_part), keys=16)
    views = [cache.view(0, batch) for cache in caches]
    fused = FusedStep(lm, MAX_LEN)(tokens, places, views[0], 48, tiles)
    same(fused, lm.decode_step(tokens, places, views[1], 48), 1e-4)


@pytest.mark.parametrize("module", list(PROJECTIONS))
@torch.inference_mode()
def test_adapters_of_one_layer_alone(module):
    lm, *others = networks((module,))
    caches = filled(own_slots, [2, 0])
    tokens, places = torch.tensor([7, 3]), torch.tensor([40, 11])
    fused = FusedStep(lm, MAX_LEN)(tokens, places, caches[0].view(0, 2), 48, SMALL)
    for slot, number in enumerate((2, 0)):
        mine = slice(slot, slot + 1)
        alone = others[number].decode_step(tokens[mine], places[mine], caches[0].view(slot, slot + 1), 48)
        same(fused[mine], alone, 1e-4)


@pytest.mark.parametrize("span", [None, 48], ids=["whole", "text that goes on"])
@torch.inference_mode()
def test_each_prompt_is_fed_as_by_its_folded_network(all_adapted, span):
    lm, *others = all_adapted
    numbers = [2, 0, 3]
    caches = filled(own_slots, numbers)
    codes = torch.randint(CONFIG.text_vocab_size, (3, 12))
    lengths, starts = torch.tensor([12, 5, 9]), torch.tensor([0, 0, 0] if span is None else [20, 4, 11])
    slots = torch.arange(3)
    views = [cache.gathered(slots) for cache in caches]
    fused = FusedPrefill(lm, MAX_LEN)(codes, lengths, starts, views[0], span)
    same(fused, lm.prefill_codes(codes, lengths, starts, views[1], span), 1e-4)
    for slot, number in enumerate(numbers):
        mine = slice(slot, slot + 1)
        args = codes[mine, : lengths[slot]], lengths[mine], starts[mine]
        alone = others[number].prefill_codes(*args, caches[0].gathered(slots[mine]), span)
        same(fused[mine], alone, 1e-4)


@torch.inference_mode()
def test_a_change_of_adapters_needs_no_new_view(all_adapted):
    """A captured step reads the numbers where they lie."""
    lm, *_ = all_adapted
    cache = filled(own_slots, [1, 2])[0]
    view, step = cache.view(0, 2), FusedStep(lm, MAX_LEN)
    tokens, places = torch.tensor([7, 7]), torch.tensor([0, 0])
    first = step(tokens, places, view, 48, SMALL).clone()
    cache.adapters[:] = [2, 1]
    cache.prepare()
    same(step(tokens, places, view, 48, SMALL), first.flip(0))
    assert (first[0] - first[1]).abs().max() > 0.1
