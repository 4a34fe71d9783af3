"""Fused kernels of the speech LM in operations of torch, with which the tests compare them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyvoice_runtime.gpu.kernels.arithmetic import LOG2_E
from cosyvoice_runtime.lm.kernels.prefill import CodeTables
from cosyvoice_runtime.lm.kernels.step_residual import SHRINK, Scaled
from cosyvoice_runtime.lm.torch.kv_cache import CacheLayer, LayerPages, PromptPages
from cosyvoice_runtime.lm.torch.network import RotaryTable


def prefill_attention_plain(packed: Tensor, pages: PromptPages, mixed: Tensor) -> None:
    """As :func:`prefill_attention`."""
    positions = packed.shape[1]
    kv_heads = pages.keys.shape[1]
    q = packed[:, :, : -2 * kv_heads].float().unflatten(2, (kv_heads, -1))
    keys, values = gathered(pages)
    t, j = (torch.arange(size, device=q.device) for size in (positions, keys.shape[2]))
    fed = (pages.starts + pages.lengths).clamp(max=pages.max_len)
    visible = (j <= (t + pages.starts[:, None])[:, :, None]) & (j < fed[:, None, None])
    scores = torch.einsum("btkgd,bkpd->btkgp", q, keys) * q.shape[-1] ** -0.5
    chances = torch.softmax(scores.masked_fill(~visible[:, :, None, None], -torch.inf), dim=-1)
    mixed.copy_(torch.einsum("btkgp,bkpd->btkgd", chances, values).flatten(2, 3))


def prefill_embed_plain(
    codes: Tensor, tables: CodeTables, gain: Tensor, epsilon: float, x: Tensor, normed: Tensor
) -> None:
    """As :func:`prefill_embed`."""
    together = torch.cat([tables.text, tables.control, tables.speech])
    x.copy_(F.embedding(codes.flatten(), together))
    normed.copy_(F.rms_norm(x, x.shape[1:], gain.float(), epsilon))


def prefill_gated_plain(gate_up: Tensor, inner: Tensor) -> None:
    """As :func:`prefill_gated`."""
    gate, up = gate_up.float().chunk(2, dim=1)
    inner.copy_(F.silu(gate) * up)


def prefill_heads_plain(packed: Tensor, bias: Tensor, rotation: RotaryTable, pages: PromptPages) -> None:
    """As :func:`prefill_heads`."""
    _, positions, _, head_dim = packed.shape
    kv_heads = pages.keys.shape[1]
    t = torch.arange(positions, device=packed.device)
    where = t + pages.starts[:, None]
    known = where.clamp(max=pages.max_len - 1)
    values = packed.float() + bias.float().unflatten(0, (-1, head_dim))
    first, second = values[:, :, :-kv_heads].chunk(2, dim=3)
    cosine, sine = (table[known, None] for table in (rotation.cosines, rotation.sines))
    turned = torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=3)
    packed.copy_(torch.cat([turned, values[:, :, -kv_heads:]], dim=2))
    rows, columns = ((t < pages.lengths[:, None]) & (where < pages.max_len)).nonzero(as_tuple=True)
    fed = known[rows, columns]
    written, found = pages.tables.written[rows, fed // pages.page].long(), packed[rows, columns]
    pages.keys[written, :, fed % pages.page] = found[:, -2 * kv_heads : -kv_heads].to(pages.keys.dtype)
    pages.values[written, :, fed % pages.page] = found[:, -kv_heads:].to(pages.values.dtype)


def prefill_residual_plain(product: Tensor, gain: Tensor, epsilon: float, x: Tensor, normed: Tensor) -> None:
    """As :func:`prefill_residual`."""
    x += product
    normed.copy_(F.rms_norm(x, x.shape[1:], gain.float(), epsilon))


def normed_of(scaled: Scaled, epsilon: float) -> Tensor:
    """The norm float32 ``[S, C]`` of a residual."""
    mean = scaled.squares.sum(dim=1, keepdim=True) / scaled.values.shape[1]
    return scaled.values.float() / SHRINK * torch.rsqrt(mean + epsilon)


def take_residual(scaled: Scaled, residual: Tensor, gain: Tensor) -> None:
    """Take a residual ``[S, C]``, as the kernels do."""
    scaled.values.copy_(residual * gain * SHRINK)
    scaled.squares.copy_(residual.square().unflatten(1, (scaled.squares.shape[1], -1)).sum(dim=2))


def gathered(pages: LayerPages) -> tuple[Tensor, Tensor]:
    """Keys and values float32 ``[B, kv_heads, W * positions of a page, D]``."""
    read = pages.tables.read.long()
    keys, values = (kept[read].float().transpose(1, 2).flatten(2, 3) for kept in (pages.keys, pages.values))
    return keys, values


def step_attention_plain(queries: Tensor, cache: CacheLayer, mixed: Tensor, shares: Tensor) -> None:
    """As :func:`step_attention`; unsplit: part 0 holds the result, the other parts have weight 0."""
    _, kv_heads, _, head_dim = cache.keys.shape
    q = queries.float().unflatten(1, (kv_heads, -1, head_dim))
    keys, values = gathered(cache)
    scores = torch.einsum("skgd,skpd->skgp", q, keys)
    later = torch.arange(keys.shape[2], device=q.device) > cache.positions[:, None]
    scores = scores.masked_fill(later[:, None, None], -torch.inf)
    weights = torch.softmax(scores * 0.6931471805599453, dim=-1)
    mixed[0] = torch.einsum("skgp,skpd->skgd", weights, values).flatten(1) * SHRINK
    mixed[1:] = 0
    shares[0] = 0
    shares[1:] = -torch.inf


def step_embed_plain(tokens: Tensor, table: Tensor, gain: Tensor, x: Tensor, scaled: Scaled) -> None:
    """As :func:`step_embed`."""
    x.copy_(F.embedding(tokens, table))
    take_residual(scaled, x, gain)


def step_gated_plain(scaled: Scaled, weight: Tensor, epsilon: float, inner: Tensor) -> None:
    """As :func:`step_gated`."""
    gate, up = F.linear(normed_of(scaled, epsilon), weight.float()).chunk(2, dim=1)
    inner.copy_(F.silu(gate) * up * SHRINK)


def step_head_plain(scaled: Scaled, weight: Tensor, bias: Tensor, epsilon: float, logits: Tensor) -> None:
    """As :func:`step_head`."""
    logits.copy_(F.linear(normed_of(scaled, epsilon), weight.float(), bias))


def step_qkv_plain(
    scaled: Scaled,
    weight: Tensor,
    bias: Tensor,
    rotation: RotaryTable,
    epsilon: float,
    queries: Tensor,
    cache: CacheLayer,
) -> None:
    """As :func:`step_qkv`."""
    _, kv_heads, _, head_dim = cache.keys.shape
    packed = F.linear(normed_of(scaled, epsilon), weight.float(), bias).unflatten(1, (-1, head_dim))
    heads = packed.shape[1] - 2 * kv_heads
    first, second = packed[:, : heads + kv_heads].chunk(2, dim=2)
    cosine, sine = (table[cache.positions, None] for table in (rotation.cosines, rotation.sines))
    turned = torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=2)
    queries.copy_((turned[:, :heads] * (head_dim**-0.5 * LOG2_E)).flatten(1))
    slots = torch.arange(len(packed), device=packed.device)
    pages = cache.tables.written[slots, cache.positions // cache.page].long()
    rows = cache.positions % cache.page
    cache.keys[pages, :, rows] = turned[:, heads:].to(cache.keys.dtype)
    cache.values[pages, :, rows] = packed[:, heads + kv_heads :].to(cache.values.dtype)


def step_residual_plain(
    inputs: Tensor, shares: Tensor, weight: Tensor, gain: Tensor, x: Tensor, scaled: Scaled
) -> None:
    """As :func:`step_residual`."""
    joined = inputs[0].float()
    if len(inputs) > 1:
        weights = torch.softmax(shares * 0.6931471805599453, dim=0)
        by_head = inputs.float().unflatten(2, (weights.shape[2], -1))
        joined = (by_head * weights[..., None]).sum(dim=0).flatten(1)
    x += F.linear(joined, weight.float()) / SHRINK
    take_residual(scaled, x, gain)
