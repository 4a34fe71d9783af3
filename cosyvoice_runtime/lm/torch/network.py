"""Qwen2 decoder with speech tokens in and out.

B: sequences, T: positions fed at once, D: head_dim, span: cache positions that are attended to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.lm_rows import layer_tensors, outer_tensors
from cosyvoice_runtime.flow.torch.layers import embedding
from cosyvoice_runtime.gpu.transfer import integers
from cosyvoice_runtime.lm.prompt import PromptSegment, Table
from cosyvoice_runtime.lm.torch.adapters import AdaptedLinear
from cosyvoice_runtime.lm.torch.head_scores import HeadScores
from cosyvoice_runtime.lm.torch.kept_queries import KeptQueries
from cosyvoice_runtime.lm.torch.kv_cache import CacheView, PassPages
from cosyvoice_runtime.lm.torch.speech_decoder import SpeechDecoder


class Placement(NamedTuple):
    """Rotation, mask and adapters of a forward pass, the same for all layers.

    cos, sin: [B, T, 1, D]; mask: [B, 1, T * queries per kv head, span], 0 or -inf,
    None for sequences that begin here: each position sees the ones before it in this pass.
    adapters: [B] numbers, None in a pass without adapters; scores: keeps those of chosen heads;
    kept: keeps their queries of the positions ``last`` [B], or of the last one of all.
    """

    cos: Tensor
    sin: Tensor
    mask: Tensor | None
    adapters: Tensor | None = None
    scores: HeadScores | None = None
    kept: KeptQueries | None = None
    last: Tensor | None = None


@dataclass(frozen=True, eq=False)
class RotaryTable:
    """Cosines and sines float32 ``[max_len, D / 2]`` of every position."""

    cosines: Tensor
    sines: Tensor

    @classmethod
    def of(cls, max_len: int, head_dim: int, theta: float, device: torch.device) -> RotaryTable:
        exponents = torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim
        angles = torch.arange(max_len, device=device)[:, None].float() * (1.0 / theta**exponents)
        return cls(angles.cos(), angles.sin())


class CachedAttention(nn.Module):
    """Grouped-query attention over the cache; biases on q, k and v only (Qwen2)."""

    def __init__(self, config: SpeechLMConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        width = config.num_heads * config.head_dim
        of_keys = config.num_kv_heads * config.head_dim
        self.qkv = AdaptedLinear(config.hidden_size, width, of_keys, of_keys, bias=True)
        self.output = AdaptedLinear(width, config.hidden_size)

    def forward(self, x: Tensor, layer: int, rotation: Placement, pages: PassPages) -> Tensor:
        batch, length, _ = x.shape
        heads = self.qkv(x, rotation.adapters).view(batch, length, -1, self.head_dim)
        rotated = _rotate(heads[:, :, : self.heads + self.kv_heads], rotation.cos, rotation.sin)
        queries, keys = rotated[:, :, : self.heads], rotated[:, :, self.heads :]
        values = heads[:, :, self.heads + self.kv_heads :]
        pages.write(layer, keys, values)
        if rotation.kept is not None:
            rotation.kept.take(layer, queries, rotation.last)
        if rotation.mask is None:
            mixed = attend_from_start(queries, keys, values)
        else:
            found, of_values = pages.read(layer)
            if rotation.scores is not None:
                rotation.scores.take(layer, queries, found)
            mixed = self._cached(queries, found, of_values, rotation.mask)
        return self.output(mixed.reshape(batch, length, -1), rotation.adapters)

    def _cached(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Attention [B, T, heads, D] of queries [B, T, heads, D] to the cache."""
        batch, length, _, _ = queries.shape
        grouped = self._by_kv_head(queries)
        mixed = F.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask)
        mixed = mixed.view(batch, self.kv_heads, -1, length, self.head_dim)
        return mixed.permute(0, 3, 1, 2, 4)

    def _by_kv_head(self, queries: Tensor) -> Tensor:
        """[B, T, heads, D] to [B, kv_heads, heads / kv_heads * T, D].

        The queries that share a kv head become one longer query sequence, so keys and values are read
        once instead of being repeated for each head.
        """
        batch, length, _, _ = queries.shape
        grouped = queries.view(batch, length, self.kv_heads, -1, self.head_dim)
        return grouped.permute(0, 2, 3, 1, 4).reshape(batch, self.kv_heads, -1, self.head_dim)


class GatedMLP(nn.Module):
    """SwiGLU with gate and up projections in one matrix."""

    def __init__(self, config: SpeechLMConfig) -> None:
        super().__init__()
        inner = config.intermediate_size
        self.gate_up = AdaptedLinear(config.hidden_size, inner, inner)
        self.down = AdaptedLinear(inner, config.hidden_size)

    def forward(self, x: Tensor, adapters: Tensor | None = None) -> Tensor:
        gate, up = self.gate_up(x, adapters).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up, adapters)


class DecoderLayer(nn.Module):
    """Pre-norm attention and MLP."""

    def __init__(self, config: SpeechLMConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.attention = CachedAttention(config)
        self.mlp_norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = GatedMLP(config)

    def forward(self, x: Tensor, layer: int, rotation: Placement, pages: PassPages) -> Tensor:
        x = x + self.attention(self.attention_norm(x), layer, rotation, pages)
        return x + self.mlp(self.mlp_norm(x), rotation.adapters)


class SpeechLM(SpeechDecoder):
    """Text and speech tokens in, logits over the speech rows out.

    Attributes:
        scores: keeps the scores of chosen heads in each pass over a cache; None computes none.
    """

    scores: HeadScores | None = None

    def __init__(self, config: SpeechLMConfig) -> None:
        super().__init__(config)
        self.text_embedding = embedding(config.text_vocab_size, config.hidden_size)
        self.control_embedding = embedding(2, config.hidden_size)
        self.speech_embedding = embedding(config.speech_rows, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.head = nn.Linear(config.hidden_size, config.speech_rows, bias=config.head_bias)

    @staticmethod
    def own_tensors(
        config: SpeechLMConfig, tensors: Mapping[str, Tensor], convert: Callable[[Tensor], Tensor]
    ) -> dict[str, Tensor]:
        """Tensors with joined projections, which lie apart in ``llm.pt``; the device joins them faster."""
        state = {name: convert(tensor) for name, tensor in outer_tensors(config, tensors).items()}

        def joined(separate: list[Tensor]) -> Tensor:
            return torch.cat([convert(each) for each in separate])

        for index in range(config.num_layers):
            for name, tensor in layer_tensors(tensors, index, joined).items():
                state[f"layers.{index}.{name}"] = convert(tensor)
        return state

    def embed(self, segments: Sequence[PromptSegment]) -> Tensor:
        """Embeddings [T, hidden] of segments, in order."""
        return torch.cat([self._table(table)(integers(ids, self.device)) for table, ids in segments])

    def embed_codes(self, codes: Tensor) -> Tensor:
        """Embeddings [..., hidden] of `prompt_codes` [...]."""
        control = codes - self.config.text_vocab_size
        speech = control - self.control_embedding.num_embeddings
        found = self.speech_embedding(speech.clamp(min=0))
        found = torch.where(speech[..., None] < 0, self.control_embedding(control.clamp(0, 1)), found)
        text = self.text_embedding(codes.clamp(max=self.config.text_vocab_size - 1))
        return torch.where(control[..., None] < 0, text, found)

    def forward(
        self,
        embeddings: Tensor,
        positions: Tensor,
        cache: CacheView,
        span: int | None,
        last: Tensor | None = None,
    ) -> Tensor:
        """Run the decoder as :class:`SpeechDecoder` says; without a span the sequences begin with these
        positions.

        Args:
            last: [B] int64, the position of each sequence whose queries are kept; None: the last one of all.
        """
        rotation, pages = self._rotation(positions, span, embeddings.dtype), cache.at(positions, span)
        rotation = rotation._replace(
            adapters=cache.tables.adapters, scores=self.scores, kept=cache.kept, last=last
        )
        x = embeddings
        for index, layer in enumerate(self.layers):
            x = layer(x, index, rotation, pages)
        return self.norm(x)

    def prefill_codes(
        self, codes: Tensor, lengths: Tensor, starts: Tensor, cache: CacheView, span: int | None
    ) -> Tensor:
        """Feed prompts, padded to one length, each to a slot of ``cache``.

        Shapes depend on those of ``codes`` and ``cache`` and on ``span`` alone, and nothing is read back to
        the host, so it can be captured. Padding behind a prompt, and any code fed to a slot without a prompt
        at its next free position, is overwritten before it is ever attended to.

        Args:
            codes: [B, T] int64, `prompt_codes` and any codes behind them.
            lengths: [B] int64, codes of each prompt, at least 1.
            starts: [B] int64, position of each first code.
            span: as :meth:`forward`; None for whole prompts.

        Returns:
            float32 logits [B, speech_rows] after the last code of each prompt.
        """
        positions = torch.arange(codes.shape[1], device=codes.device) + starts[:, None]
        positions = positions.clamp(max=cache.max_len - 1)
        hidden = self(self.embed_codes(codes), positions, cache, span, lengths - 1)
        return self.logits(hidden[torch.arange(len(codes), device=codes.device), lengths - 1])

    def _table(self, table: Table) -> nn.Embedding:
        return cast(nn.Embedding, getattr(self, f"{table.value}_embedding"))

    def _rotation(self, positions: Tensor, span: int | None, dtype: torch.dtype) -> Placement:
        config, device = self.config, positions.device
        exponents = torch.arange(0, config.head_dim, 2, device=device, dtype=torch.float32) / config.head_dim
        angles = positions[..., None, None].float() * (1.0 / config.rope_theta**exponents)
        cos, sin = angles.cos(), angles.sin()
        return Placement(
            cos=torch.cat([cos, cos], dim=-1).to(dtype),
            sin=torch.cat([-sin, sin], dim=-1).to(dtype),
            mask=None if span is None else self._mask(positions, span, dtype),
        )

    def _mask(self, positions: Tensor, span: int, dtype: torch.dtype) -> Tensor:
        hidden = torch.arange(span, device=positions.device) > positions[..., None]
        mask = torch.zeros(hidden.shape, device=hidden.device, dtype=dtype)
        mask.masked_fill_(hidden, float("-inf"))
        return mask[:, None].repeat(1, 1, self.config.num_heads // self.config.num_kv_heads, 1)


class NetworkHeads:
    """`text_rows.FollowedHeads` of a network.

    Args:
        heads: layer and head of each.
    """

    def __init__(self, lm: SpeechLM, heads: Sequence[tuple[int, int]]) -> None:
        self._lm = lm
        self._scores = HeadScores(heads)

    @contextmanager
    def watched(self) -> Iterator[None]:
        self._lm.scores = self._scores
        try:
            yield
        finally:
            self._lm.scores = None

    def row(self, place: int, slot: int, text: slice) -> Floats:  # noqa: ARG002
        [shares] = self._scores.shares(text, slice(place, place + 1))
        row: Floats = shares[:, -1].mean(0).cpu().numpy()
        return row


def attend_from_start(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attention [B, T, heads, D] of sequences that begin here, keys and values [B, T, kv_heads, D]."""
    queries, keys, values = (x.transpose(1, 2) for x in (queries, keys, values))
    mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)
    return mixed.transpose(1, 2)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding over the two halves of the last axis; ``sin`` carries the sign."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)
