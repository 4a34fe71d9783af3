"""Fused kernels of the flow and the vocoder in operations of torch, with which the tests compare them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyvoice_runtime.flow.kernels.convolutions import Activation, ConvWeights, GroupedConvWeights
from cosyvoice_runtime.flow.kernels.fused_encoder import RelativeWeights
from cosyvoice_runtime.flow.kernels.last_layer import SolverStep
from cosyvoice_runtime.flow.kernels.layers import NORM_EPSILON
from cosyvoice_runtime.flow.torch.call_pages import PagePlaces, Places
from cosyvoice_runtime.flow.torch.dit import NORM_EPS, Rotation
from cosyvoice_runtime.vocoder.kernels.row_conv import RowConvWeights


def causal_conv_plain(
    x: Tensor,
    weights: ConvWeights,
    pages: Places,
    step: int,
    out: Tensor,
    activation: Activation | None = None,
) -> None:
    """As :func:`causal_conv`."""
    width = x.shape[1]
    taps = weights.weight.shape[1] // width
    at = slice(weights.tail, weights.tail + (taps - 1) * width)
    before = pages.tails[:, step, at].unflatten(1, (taps - 1, width))
    x = x.float() if activation is None else activated(x, activation)
    extended = torch.cat([before.float(), x.view(pages.rows, pages.new_frames, width)], dim=1)
    windows = extended.unfold(1, taps, 1).transpose(2, 3).flatten(2)
    out.copy_(F.linear(windows, weights.weight.float(), weights.bias).flatten(0, 1))
    for row in range(pages.rows):
        length = int(pages.lengths[row % len(pages.lengths)])
        kept = extended[row, length : length + taps - 1].flatten()
        pages.new_tails[row, step, at] = kept.to(pages.new_tails.dtype)


def dense_plain(hidden: Tensor, weight: Tensor, bias: Tensor, out: Tensor, active: bool = False) -> None:
    """As :func:`dense`."""
    y = F.linear(hidden.float(), weight.float(), bias)
    out.copy_(F.gelu(y, approximate="tanh") if active else y)


def grouped_conv_plain(
    x: Tensor, weights: GroupedConvWeights, pages: Places, step: int, out: Tensor, added: bool = False
) -> None:
    """As :func:`grouped_conv`."""
    channels = x.shape[1]
    spans, taps, span, _ = weights.weight.shape
    at = slice(weights.tail, weights.tail + (taps - 1) * channels)
    before = pages.tails[:, step, at].unflatten(1, (taps - 1, channels))
    extended = torch.cat([before, x.to(before.dtype).view(pages.rows, pages.new_frames, channels)], dim=1)
    weight = weights.weight.float().permute(0, 3, 2, 1).reshape(channels, span, taps)
    conved = F.conv1d(extended.float().transpose(1, 2), weight, weights.bias, groups=spans)
    y = F.mish(conved).transpose(1, 2).flatten(0, 1)
    out.copy_(out + y if added else y)
    for row in range(pages.rows):
        length = int(pages.lengths[row % len(pages.lengths)])
        pages.new_tails[row, step, at] = extended[row, length : length + taps - 1].flatten()


def linear_step_plain(hidden: Tensor, weight: Tensor, bias: Tensor, step: SolverStep) -> None:
    """As :func:`linear_step`."""
    take_step_plain(F.linear(hidden.float(), weight.float(), bias), step)


def modulated_norm_plain(x: Tensor, gain: Tensor, shift: Tensor, out: Tensor) -> None:
    """As :func:`modulated_norm`."""
    out.copy_(F.layer_norm(x, x.shape[1:], eps=NORM_EPS) * gain + shift)


def norm_attention_plain(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    pages: Places,
    attention: int,
    step: int,
    mixed: Tensor,
    weights: Tensor,
) -> None:
    """As :func:`norm_attention`."""
    queries = mixed.new_empty(mixed.shape[1:])
    norm_qkv_plain(x, weight, bias, queries, pages, attention, step)
    paged_attention_plain(queries, pages, attention, step, mixed, weights)


def norm_mish_add_plain(x: Tensor, scale: Tensor, shift: Tensor, shortcut: Tensor, out: Tensor) -> None:
    """As :func:`norm_mish_add`."""
    out.copy_(F.mish(F.layer_norm(x, x.shape[1:], scale, shift, NORM_EPSILON)) + shortcut)


def norm_qkv_plain(
    x: Tensor, weight: Tensor, bias: Tensor, queries: Tensor, pages: Places, attention: int, step: int
) -> None:
    """As :func:`norm_qkv`."""
    inner = queries.shape[1]
    packed = F.linear(F.layer_norm(x, x.shape[1:], eps=NORM_EPSILON), weight.float(), bias)
    queries.copy_(packed[:, :inner])
    heads = packed[:, inner:].unflatten(1, (2, *pages.pages.shape[-2:]))
    pages.store(attention, heads.unflatten(0, (pages.rows, pages.new_frames)), step)


def norm_step_plain(
    hidden: Tensor, scale: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, step: SolverStep
) -> None:
    """As :func:`norm_step`."""
    activated = F.mish(F.layer_norm(hidden, hidden.shape[1:], scale, shift, NORM_EPSILON))
    take_step_plain(F.linear(activated, weight.float(), bias), step)


def norm_widen_plain(x: Tensor, weight: Tensor, bias: Tensor, hidden: Tensor) -> None:
    """As :func:`norm_widen`."""
    hidden.copy_(F.gelu(F.linear(F.layer_norm(x, x.shape[1:], eps=NORM_EPSILON), weight.float(), bias)))


def paged_attention_plain(
    queries: Tensor, pages: Places, attention: int, step: int, mixed: Tensor, weights: Tensor
) -> None:
    """As :func:`paged_attention`; unsplit: part 0 holds the result, the other parts have weight 0."""
    heads, head_dim = pages.pages.shape[-2:]
    q = queries.float().view(pages.rows, pages.new_frames, heads, head_dim)
    seen = pages.seen(attention, step)
    scores = torch.einsum("rthd,rshd->rhts", q, seen[:, :, 0])
    visible = visible_in_pages(pages)
    visible = visible.repeat(pages.rows // len(visible), 1, 1)[:, None]
    shares = torch.softmax(scores.masked_fill(~visible, -torch.inf) * 0.6931471805599453, dim=-1)
    mixed[0] = torch.einsum("rhts,rshd->rthd", shares, seen[:, :, 1]).flatten(2).flatten(0, 1).to(mixed.dtype)
    mixed[1:] = 0
    weights[0] = 0
    weights[1:] = -torch.inf


def relative_attention_plain(
    queries: Tensor,
    weights: RelativeWeights,
    pages: PagePlaces,
    attention: int,
    mixed: Tensor,
    shares: Tensor,
) -> None:
    """As :func:`relative_attention`; unsplit: part 0 holds the result, the other parts have weight 0."""
    page = pages.page_frames
    q, device = queries.float(), queries.device
    heads = q.shape[2]
    seen = pages.seen(attention)
    scores = torch.einsum("rthd,rshd->rhts", q + weights.content_bias, seen[:, :, 0])
    by_distance = weights.by_distance.float().unflatten(1, (heads, -1))
    by_position = torch.einsum("rthd,nhd->rhtn", q + weights.position_bias, by_distance)
    query = pages.before * page + torch.arange(q.shape[1], device=device)
    distance = query[:, None] - torch.arange(seen.shape[1], device=device)
    distance = (distance + page - 1).clamp(min=0)  # what lies further ahead is not visible
    scores += by_position.gather(3, distance.expand(*scores.shape[:2], -1, -1))
    visible = visible_in_pages(pages)[:, None]
    chances = torch.softmax((scores * q.shape[3] ** -0.5).masked_fill(~visible, -torch.inf), dim=-1)
    mixed[0] = (
        torch.einsum("rhts,rshd->rthd", chances, seen[:, :, 1]).flatten(2).flatten(0, 1).to(mixed.dtype)
    )
    mixed[1:] = 0
    shares[0] = 0
    shares[1:] = -torch.inf


def residual_linear_plain(
    hidden: Tensor, weights: Tensor, weight: Tensor, bias: Tensor, x: Tensor, gate: Tensor | None = None
) -> None:
    """As :func:`residual_linear`."""
    joined = hidden[0].float()
    if len(hidden) > 1:
        shares = torch.softmax(weights * 0.6931471805599453, dim=0)
        joined = (hidden.float().unflatten(2, (shares.shape[2], -1)) * shares[..., None]).sum(0).flatten(1)
    new = F.linear(joined, weight.float(), bias)
    x += new if gate is None else gate * new


def row_conv_plain(
    x: Tensor,
    weights: RowConvWeights,
    lengths: Tensor,
    residual: Tensor | None = None,
    out: Tensor | None = None,
    alpha: Tensor | None = None,
    active: Tensor | None = None,
) -> None:
    """As :func:`row_conv`."""
    shaped = active if out is None else out
    assert shaped is not None
    taps, steps = len(weights.weight), shaped.shape[1]
    last = weights.first + (taps - 1) * weights.dilation + steps - x.shape[1]
    padded = F.pad(x.float(), (0, 0, -weights.first, last))
    windows = [padded[:, weights.dilation * tap :][:, :steps] for tap in range(taps)]
    y = torch.cat(windows, dim=2) @ weights.weight.flatten(0, 1).float() + weights.bias
    y = trimmed(y if residual is None else y + residual.float(), lengths)
    if out is not None:
        out.copy_(y)
    if active is not None and alpha is not None:
        active.copy_(snake_plain(y, alpha))


def snake_plain(signal: Tensor, alpha: Tensor) -> Tensor:
    """``x + sin(alpha x)^2 / alpha`` of float32 ``[..., C]``."""
    wave = torch.sin(signal * alpha)
    return signal + wave * wave / (alpha + 1e-9)


def snakes_plain(
    x: Tensor, added: Tensor, alphas: Tensor, lengths: Tensor, out: Tensor, actives: Tensor
) -> None:
    """As :func:`snakes`."""
    if x.shape[1] < out.shape[1]:
        x = torch.cat([x[:, 1:2], x], dim=1)
    out.copy_(trimmed(x.float() + added.float(), lengths))
    for active, alpha in zip(actives, alphas, strict=True):
        active.copy_(snake_plain(trimmed(x.float() + added.float(), lengths), alpha))


def take_step_plain(velocity: Tensor, step: SolverStep) -> None:
    """As the kernels' end, from the velocities ``[R M, mel]`` of all guidance rows."""
    if step.rate:
        conditioned, unconditioned = velocity.chunk(2)
        velocity = (1 + step.rate) * conditioned - step.rate * unconditioned
    change = velocity
    if step.before is not None and step.slope is not None and step.slope:
        change = velocity + step.slope * (velocity - step.before)
    if step.before is not None:
        step.before.copy_(velocity)
    step.mel.add_(step.size * change)
    bins = step.mel.shape[1]
    step.packed[:, :bins] = step.mel.repeat(len(step.packed) // len(step.mel), 1)


def turned_qkv_plain(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor,
    rotation: Rotation,
    queries: Tensor,
    pages: Places,
    attention: int,
    step: int,
) -> None:
    """As :func:`turned_qkv`."""
    heads, head_dim = pages.pages.shape[-2:]
    packed = F.linear(hidden.float(), weight.float(), bias)
    split = packed.view(pages.rows, pages.new_frames, 3, heads, head_dim)
    position = (pages.before - pages.unused)[:, None] * pages.page_frames
    position = position + torch.arange(pages.new_frames, device=hidden.device)
    position = position.repeat(pages.rows // len(position), 1).clamp(max=rotation.cos.shape[1] - 1)
    Rotation(rotation.cos[0, position], rotation.sin[0, position]).rotate_(split[:, :, :2, 0])
    queries.copy_(split[:, :, 0].flatten(2).flatten(0, 1))
    pages.store(attention, split[:, :, 1:], step)


def visible_in_pages(pages: PagePlaces) -> Tensor:
    """bool ``[B, T, S]``: keys of the table's pages that each utterance's new frames see."""
    size, device = pages.page_frames, pages.unused.device
    key = torch.arange(pages.table.shape[1] * size, device=device)
    start = pages.before * size
    exists = (key >= pages.unused[:, None] * size) & (key < start + pages.lengths[:, None])
    block = torch.arange(pages.new_frames, device=device) // size
    return exists[:, None, :] & (key // size <= pages.before + block[:, None])


def trimmed(signal: Tensor, lengths: Tensor) -> Tensor:
    """``[B, S, C]`` with zeros from each row's end on."""
    steps = torch.arange(signal.shape[1], device=signal.device)
    return signal.masked_fill((steps >= lengths[:, None])[..., None], 0)


def activated(x: Tensor, activation: Activation) -> Tensor:
    """float32 ``[M, C]``: LayerNorm, Mish and the addition."""
    normed = F.layer_norm(x.float(), x.shape[1:], activation.scale, activation.shift, NORM_EPSILON)
    return F.mish(normed) + activation.added
