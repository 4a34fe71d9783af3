"""A decode step of the speech LM in fused kernels, and the kernel of its attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from cosyvoice_runtime.flow.kernels.paged_attention import softmax_update
from cosyvoice_runtime.gpu.kernels.arithmetic import (
    NOT_CHAINED,
    let_next_start,
    let_next_start_at_once,
    wait_for_previous,
)
from cosyvoice_runtime.gpu.kernels.launch import launched, next_power_of_2
from cosyvoice_runtime.gpu.kernels.rows import GpuRow, row_on
from cosyvoice_runtime.gpu.kernels.step_tiles import StepTiles
from cosyvoice_runtime.gpu.partitions.partition import GpuPart
from cosyvoice_runtime.lm.kernels.step_adapters import step_addend
from cosyvoice_runtime.lm.kernels.step_normed import step_gated, step_head, step_qkv
from cosyvoice_runtime.lm.kernels.step_residual import SHRINK, Scaled, step_embed, step_residual
from cosyvoice_runtime.lm.torch.adapters import AdapterStack
from cosyvoice_runtime.lm.torch.kv_cache import CacheLayer, CacheView
from cosyvoice_runtime.lm.torch.network import DecoderLayer, RotaryTable, SpeechLM


@triton.jit
def _load_block(
    keys, values, page, first, seen, page_stride,
    PAGE: tl.constexpr, HEAD_DIM: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Keys ``[D, KEYS]`` and values ``[KEYS, D]`` from position ``first`` on; zeros for positions that are
    not seen."""
    start = page.to(tl.int64) * page_stride + first % PAGE * HEAD_DIM
    j = tl.arange(0, KEYS)
    d = tl.arange(0, HEAD_DIM)
    k = tl.load(keys + start + j[None, :] * HEAD_DIM + d[:, None], mask=seen[None, :], other=0.0)
    v = tl.load(values + start + j[:, None] * HEAD_DIM + d[None, :], mask=seen[:, None], other=0.0)
    return k, v


@launched
@triton.jit(do_not_specialize=["batch"])
def _step_attention(
    queries, keys, values, table, positions, mixed, shares, batch, table_width, page_stride, head_stride,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr, SPLITS: tl.constexpr,
    SHRINK: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    let_next_start_at_once(CHAINED)
    GROUP: tl.constexpr = HEADS // KV_HEADS
    slot = tl.program_id(0) // KV_HEADS
    kv = tl.program_id(0) % KV_HEADS
    split = tl.program_id(1)
    i = tl.arange(0, QUERIES)
    j = tl.arange(0, KEYS)
    d = tl.arange(0, HEAD_DIM)
    position = tl.load(positions + slot).to(tl.int32)
    part = tl.cdiv(position + 1, SPLITS * KEYS) * KEYS
    first = split * part
    end = tl.minimum(position + 1, first + part)
    table += slot * table_width
    keys += kv * head_stride
    values += kv * head_stride
    page = tl.load(table + first // PAGE, mask=first < end, other=0)
    # Earlier positions are there already; the new one only after the wait.
    before = first + j < tl.minimum(end, position)
    k, v = _load_block(keys, values, page, first, before, page_stride, PAGE, HEAD_DIM, KEYS)
    following = tl.load(table + (first + KEYS) // PAGE, mask=first + KEYS < end, other=0)
    seen = first + j < end
    asks = (i < GROUP)[:, None]
    head = slot * HEADS + kv * GROUP + i
    wait_for_previous(CHAINED)
    q = tl.load(queries + head[:, None] * HEAD_DIM + d[None, :], mask=asks, other=0.0)
    if first + KEYS > position:
        k, v = _load_block(keys, values, page, first, seen, page_stride, PAGE, HEAD_DIM, KEYS)
    peak = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    sums = tl.zeros([QUERIES, HEAD_DIM], tl.float32)
    for block in tl.range(first, end, KEYS, num_stages=1):
        # The next keys are on their way while these are used.
        after = block + KEYS
        later = after + j < end
        next_k, next_v = _load_block(keys, values, following, after, later, page_stride, PAGE, HEAD_DIM, KEYS)
        following = tl.load(table + (after + KEYS) // PAGE, mask=after + KEYS < end, other=0)
        peak, total, sums = softmax_update(q, k, v, seen, peak, total, sums)
        k, v, seen = next_k, next_v, later
    let_next_start(CHAINED)
    some = tl.where(total > 0, total, 1.0)  # A split without keys is zeros, and has no weight.
    mean = sums * (SHRINK / some)[:, None]
    place = split * batch * HEADS + head
    at = mixed + place[:, None] * HEAD_DIM + d[None, :]
    tl.store(at, mean.to(mixed.dtype.element_ty), mask=asks)
    if SPLITS > 1:
        tl.store(shares + place, peak + tl.log2(total), mask=i < GROUP)


def step_attention(
    queries: Tensor,
    cache: CacheLayer,
    mixed: Tensor,
    shares: Tensor,
    keys: int,
    warps: int,
    chained: int = NOT_CHAINED,
) -> None:
    """Softmax of ``queries [S, H * D]``, already scaled, in powers of two, over all positions so far.

    Args:
        mixed: ``[splits, S, H * D]``, written: values mixed over each split of the keys; `SHRINK`
            times their size.
        shares: float32 ``[splits, S, H]``, written unless there is one split: log2 of each split's share.
        keys: positions that a program takes at a time; they lie in one page.

    Raises:
        ValueError: pages are no multiple of ``keys``, and a slot has several.
    """
    batch, (_, kv_heads, page, head_dim) = len(queries), cache.keys.shape
    table = cache.tables.read
    if page % keys and table.shape[1] > 1:
        raise ValueError(f"{keys} keys at a time don't divide pages of {page} positions")
    heads = queries.shape[1] // head_dim
    _step_attention[(batch * kv_heads, len(mixed))](
        queries, cache.keys, cache.values, table, cache.positions, mixed, shares,
        batch, table.stride(0), cache.keys.stride(0), cache.keys.stride(1),
        heads, kv_heads, head_dim, page, max(16, next_power_of_2(heads // kv_heads)), keys, len(mixed),
        SHRINK, chained, num_warps=warps, launch_pdl=chained > 0,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """Weights of a decoder layer: linear ones in the activations' type, norms' weights and biases in float32.

    Tensor cores take both in one type; float16 holds all digits of bfloat16. Adapters stay as they are.
    """

    attention_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor
    qkv_adapters: AdapterStack | None
    out_adapters: AdapterStack | None
    gated_adapters: AdapterStack | None
    down_adapters: AdapterStack | None

    @classmethod
    def of(cls, layer: torch.nn.Module, dtype: torch.dtype) -> LayerWeights:
        assert isinstance(layer, DecoderLayer)
        return cls(
            attention_norm=layer.attention_norm.weight.float(),
            qkv=layer.attention.qkv.weight.to(dtype).contiguous(),
            qkv_bias=layer.attention.qkv.bias.float(),
            out=layer.attention.output.weight.to(dtype).contiguous(),
            mlp_norm=layer.mlp_norm.weight.float(),
            gate_up=layer.mlp.gate_up.weight.to(dtype).contiguous(),
            down=layer.mlp.down.weight.to(dtype).contiguous(),
            qkv_adapters=layer.attention.qkv.stack,
            out_adapters=layer.attention.output.stack,
            gated_adapters=layer.mlp.gate_up.stack,
            down_adapters=layer.mlp.down.stack,
        )


def activations_of(lm: SpeechLM) -> torch.dtype:
    """Type of what passes between the kernels."""
    return torch.float16 if lm.dtype == torch.bfloat16 else lm.dtype


class StepMemory:
    """Memory between the kernels of a step of S sequences.

    Attributes:
        x: float32 ``[S, C]`` the residual.
        for_attention, for_mlp: the residual for the norm before each.
        queries: ``[S, H * D]`` in the type of keys and values.
        mixed, shares: ``[splits, S, H * D]`` and ``[splits, S, H]`` from attention.
        inner: ``[S, I]`` of the feed-forward.
        logits: float32 ``[S, speech_rows]``.
    """

    def __init__(self, lm: SpeechLM, batch: int, splits: int, tiles: StepTiles) -> None:
        config, device = lm.config, lm.device
        width = config.num_heads * config.head_dim
        activations = activations_of(lm)

        def empty(*shape: int, dtype: torch.dtype = activations) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        self.x = empty(batch, config.hidden_size, dtype=torch.float32)
        self.for_attention = Scaled.empty(self.x, activations, tiles.down.rows)
        self.for_mlp = Scaled.empty(self.x, activations, tiles.out.rows)
        self.queries = empty(batch, width, dtype=lm.dtype)
        self.mixed = empty(splits, batch, width)
        self.shares = empty(splits, batch, config.num_heads, dtype=torch.float32)
        self.inner = empty(batch, config.intermediate_size)
        self.logits = empty(batch, config.speech_rows, dtype=torch.float32)


class FusedStep:
    """Computes :meth:`SpeechLM.decode_step` on the same cache.

    The last bits differ from plain modules: the residual, norms and rotation stay float32 throughout.

    Args:
        max_len: most positions of a slot.
        parts: partitions of the GPU; a step in the stream of one divides its work for few multiprocessors.
        row: tiles, and whether kernels start while the one before ends; None: those of the network's device.
    """

    def __init__(
        self, lm: SpeechLM, max_len: int, parts: Sequence[GpuPart] = (), row: GpuRow | None = None
    ) -> None:
        config = lm.config
        self._parts = parts
        self._lm, self._row = lm, row or row_on(lm.device)
        dtype = activations_of(lm)
        self._layers = [LayerWeights.of(layer, dtype) for layer in lm.layers]
        self._norm = lm.norm.weight.float()
        self._head = lm.head.weight.to(dtype).contiguous()
        no_bias = torch.zeros(config.speech_rows, device=lm.device)
        self._head_bias = no_bias if lm.head.bias is None else lm.head.bias.float()
        self._rotation = RotaryTable.of(max_len, config.head_dim, config.rope_theta, lm.device)

    @torch.no_grad()
    def __call__(
        self, tokens: Tensor, positions: Tensor, cache: CacheView, span: int, tiles: StepTiles | None = None
    ) -> Tensor:
        """Compute logits as :meth:`SpeechLM.decode_step`."""
        batch, epsilon = len(tokens), self._lm.config.rms_norm_eps
        tiles = tiles or self._row.step_tiles(batch, self._on_part())
        tiles = tiles.fitted(self._lm.config.hidden_size, self._lm.config.intermediate_size)
        memory = StepMemory(self._lm, batch, tiles.splits(batch, span), tiles)
        chained = tiles.trigger if self._row.chained else NOT_CHAINED
        norms = [layer.attention_norm for layer in self._layers] + [self._norm]
        step_embed(
            tokens, self._lm.speech_embedding.weight, norms[0], memory.x, memory.for_attention, chained
        )
        for index, (layer, following) in enumerate(zip(self._layers, norms[1:], strict=True)):
            pages = CacheLayer(cache.data[index, 0], cache.data[index, 1], cache.tables, positions)
            kept = None if cache.kept is None else cache.kept.of(index, batch)
            queries = memory.queries if kept is None else kept
            self._layer(layer, following, memory, queries, pages, tiles, chained)
        step_head(
            memory.for_attention, self._head, self._head_bias, epsilon, memory.logits, tiles.head, chained
        )
        return memory.logits

    def division(self, batch: int, span: int) -> tuple[int, int]:
        """Division as in :class:`SpanlessStep`: splits of the keys, on the whole GPU and on a partition."""
        whole, part = (self._row.step_tiles(batch, on_part) for on_part in (False, True))
        return whole.splits(batch, span), part.splits(batch, span)

    def _on_part(self) -> bool:
        stream = torch.cuda.current_stream(self._lm.device) if self._parts else None
        return any(part.stream == stream for part in self._parts)

    def _layer(
        self,
        layer: LayerWeights,
        following: Tensor,
        memory: StepMemory,
        queries: Tensor,
        pages: CacheLayer,
        tiles: StepTiles,
        chained: int,
    ) -> None:
        """One layer on the residual; ``queries`` are its own, and ``following`` the weight of the next
        norm."""
        epsilon, adapters = self._lm.config.rms_norm_eps, pages.tables.adapters
        mixed, inner = (memory.mixed, memory.shares), (memory.inner[None], memory.shares)
        normed = memory.for_attention.values[None], memory.shares
        step_qkv(
            memory.for_attention, layer.qkv, layer.qkv_bias, self._rotation, epsilon,
            queries, pages, tiles.qkv, chained,
            step_addend(layer.qkv_adapters, adapters, *normed, chained),
        )  # fmt: skip
        step_attention(queries, pages, *mixed, tiles.keys, tiles.attention_warps, chained)
        step_residual(
            *mixed, layer.out, layer.mlp_norm, memory.x, memory.for_mlp, tiles.out, chained,
            step_addend(layer.out_adapters, adapters, *mixed, chained),
        )  # fmt: skip
        normed = memory.for_mlp.values[None], memory.shares
        step_gated(
            memory.for_mlp, layer.gate_up, epsilon, memory.inner, tiles.gated, chained,
            step_addend(layer.gated_adapters, adapters, *normed, chained),
        )  # fmt: skip
        step_residual(
            *inner, layer.down, following, memory.x, memory.for_attention, tiles.down, chained,
            step_addend(layer.down_adapters, adapters, *inner, chained),
        )  # fmt: skip
