"""Relative attention compiled for the GPU at the published model's sizes, against its plain twin."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from plain_kernels import relative_attention_plain
from torch import Tensor

from cosyvoice_runtime.flow.kernels.fused_encoder import FusedStack, relative_weights
from cosyvoice_runtime.flow.page_store import PastLayout
from cosyvoice_runtime.flow.torch.call_pages import PagePlaces
from cosyvoice_runtime.flow.torch.encoder import EncoderLayer
from cosyvoice_runtime.gpu.kernels.tiles import RELATIVE, Tile
from gpu_close import CALLS, close, full, half
from making.architecture import FULL
from small_places import random_places

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

CONFIG = FULL.flow.conformer
HEADS, HEAD_DIM = CONFIG.num_heads, CONFIG.head_dim
LAYER = 1

PAGES = pytest.mark.parametrize("page", [25, 50])


def gpu_places(page: int, before: list[int], lengths: list[int]) -> PagePlaces:
    """Of one row for each utterance; lengths are of pages of 50 frames."""
    lengths = [-(-length * page // 50) for length in lengths]
    places = random_places(
        before, lengths, page_frames=page, heads=HEADS, head_dim=HEAD_DIM, dtype=torch.float16, device="cuda"
    )
    table, stored = places.table[: len(before)], places.page[: len(before)]
    return PagePlaces(places.pages, table, stored, places.frame, places.before, places.unused, places.lengths)


def gpu_layers() -> list[EncoderLayer]:
    layout = PastLayout(HEADS, HEAD_DIM)
    layers = [EncoderLayer(CONFIG, layout).requires_grad_(False).cuda().half() for _ in range(LAYER + 1)]
    for layer in layers:
        layer.content_bias.normal_()
        layer.position_bias.normal_()
    return layers


@PAGES
@CALLS
@pytest.mark.parametrize("splits", [1, 2, 4])
@pytest.mark.parametrize("tile", [RELATIVE, Tile(0, 0, warps=8, stages=3)], ids=["usual", "warps"])
def test_attention_equals_its_twin_in_float32_and_itself(page, before, lengths, splits, tile):
    torch.manual_seed(5)
    places = gpu_places(page, before, lengths)
    weights = [relative_weights(layer, page, places.table.shape[1]) for layer in gpu_layers()]
    packed = half(places.rows, places.new_frames, 3, HEADS, HEAD_DIM)
    stack = FusedStack(weights, places, tile, splits)
    mixed, again = (stack(LAYER, packed[:, :, 0], packed[:, :, 1:]) for _ in range(2))
    assert torch.equal(mixed, again)
    close(mixed.flatten(0, 1), twin(packed[:, :, 0], stack)[0])


def twin(queries: Tensor, stack: FusedStack) -> Tensor:
    """float32 throughout, from pages and distances in float16."""
    total = queries.shape[0] * queries.shape[1]
    mixed, shares = full(1, total, HEADS * HEAD_DIM), full(1, total, HEADS)
    relative_attention_plain(queries, stack.weights[LAYER], stack.places, LAYER, mixed, shares)
    return mixed


def test_layers_read_pages_of_their_own():
    torch.manual_seed(5)
    places = gpu_places(50, [2], [50])
    places = dataclasses.replace(places, pages=places.pages.clone())
    weights = [relative_weights(layer, 50, places.table.shape[1]) for layer in gpu_layers()]
    stack = FusedStack(weights, places)
    packed = half(1, 50, 3, HEADS, HEAD_DIM)
    first, second = (stack(layer, packed[:, :, 0], packed[:, :, 1:]) for layer in range(2))
    assert not torch.equal(first, second)
