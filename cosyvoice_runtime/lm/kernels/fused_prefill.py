"""Prompts of the speech LM: products of the libraries, and fused kernels for all that lies between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyvoice_runtime.lm.kernels.layer_pages import PromptPlaces, RotaryTable
from cosyvoice_runtime.lm.kernels.prefill import (
    CodeTables,
    prefill_attention,
    prefill_embed,
    prefill_gated,
    prefill_heads,
    prefill_residual,
)
from cosyvoice_runtime.lm.torch.kv_cache import CacheView
from cosyvoice_runtime.lm.torch.network import (
    CachedAttention,
    DecoderLayer,
    GatedMLP,
    SpeechLM,
    attend_from_start,
)


@dataclass(frozen=True, eq=False)
class NormedResidual:
    """A residual of N positions, and its norm for the product that comes next.

    Attributes:
        x: float32 ``[N, C]``.
        normed: ``[N, C]`` in the type of products.
    """

    x: Tensor
    normed: Tensor

    @classmethod
    def empty(cls, rows: int, lm: SpeechLM) -> NormedResidual:
        x = torch.empty(rows, lm.config.hidden_size, device=lm.device)
        return cls(x, torch.empty_like(x, dtype=lm.dtype))

    def take(self, product: Tensor, gain: Tensor, epsilon: float) -> None:
        """Add a product ``[N, C]``; ``gain`` is the weight of the norm that comes next."""
        prefill_residual(product, gain, epsilon, self.x, self.normed)

    def rows(self, which: Tensor) -> NormedResidual:
        """Some rows alone, whose norm is to come."""
        x = self.x[which]
        return NormedResidual(x, torch.empty_like(x, dtype=self.normed.dtype))


class FusedPrefill:
    """Computes what :meth:`SpeechLM.prefill_codes` computes, on the same cache, with the network's weights.

    The last bits differ from the plain way: the residual, norms and rotation stay float32 throughout. Nothing
    is written to the cache for padding. The last layer takes each prompt's last position alone, once its keys
    and values are written.

    Args:
        max_len: most positions of a slot.

    Attributes:
        spanless: texts are read as far as each sequence has come, whatever the span.
    """

    spanless: Literal[True] = True

    def __init__(self, lm: SpeechLM, max_len: int) -> None:
        config = lm.config
        self._lm = lm
        self._layers = cast("list[DecoderLayer]", list(lm.layers))
        norms = [layer.attention_norm for layer in self._layers]
        self._gains = [norm.weight for norm in (*norms, lm.norm)]
        self._rotation = RotaryTable.of(max_len, config.head_dim, config.rope_theta, lm.device)
        self._tables = CodeTables(
            lm.text_embedding.weight, lm.control_embedding.weight, lm.speech_embedding.weight
        )

    @torch.no_grad()
    def __call__(
        self, codes: Tensor, lengths: Tensor, starts: Tensor, cache: CacheView, span: int | None
    ) -> Tensor:
        """As :meth:`SpeechLM.prefill_codes`."""
        batch, positions = codes.shape
        epsilon = self._lm.config.rms_norm_eps
        residual = NormedResidual.empty(batch * positions, self._lm)
        prefill_embed(codes, self._tables, self._gains[0], epsilon, residual.x, residual.normed)
        last = torch.arange(0, batch * positions, positions, device=codes.device) + lengths - 1
        for index, layer in enumerate(self._layers):
            data, following = cache.data[index], self._gains[index + 1]
            places = PromptPlaces(data[0], data[1], cache.tables, starts, lengths, cache.max_len)
            mixed = self._attended(layer.attention, residual.normed, places, span)
            if index == len(self._layers) - 1:
                mixed, residual = mixed[last], residual.rows(last)
            residual.take(F.linear(mixed, layer.attention.output.weight), layer.mlp_norm.weight, epsilon)
            residual.take(_fed_forward(layer.mlp, residual.normed), following, epsilon)
        return self._lm.logits(residual.normed)

    def _attended(
        self, attention: CachedAttention, normed: Tensor, places: PromptPlaces, span: int | None
    ) -> Tensor:
        """``[B * T, H * D]`` of values mixed, from the norm ``[B * T, C]`` of the residual."""
        batch, heads, kv_heads = len(places.starts), attention.heads, attention.kv_heads
        product = F.linear(normed, attention.qkv.weight)
        packed = product.view(batch, -1, heads + 2 * kv_heads, attention.head_dim)
        prefill_heads(packed, attention.qkv.bias, self._rotation, places)
        if span is None:
            mixed = attend_from_start(*packed.split([heads, kv_heads, kv_heads], dim=2))
        else:
            mixed = torch.empty_like(packed[:, :, :heads], memory_format=torch.contiguous_format)
            prefill_attention(packed, places, mixed)
        return mixed.reshape(len(normed), -1)


def _fed_forward(mlp: GatedMLP, normed: Tensor) -> Tensor:
    """``[N, C]``."""
    gate_up = F.linear(normed, mlp.gate_up.weight)
    inner = gate_up.new_empty(len(normed), gate_up.shape[1] // 2)
    prefill_gated(gate_up, inner)
    return F.linear(inner, mlp.down.weight)
