"""CosyVoice-300M's speech LM: encoded text and a speaker in, speech tokens out.

Attention depends on distances alone, so keys and values of earlier positions never change. Scores by distance
are gathered for each query and key, from a table that each layer projects once.

B: sequences, T: positions fed at once, D: head_dim, span: cache positions that are attended to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cosyvoice_runtime.arrays import as_arrays
from cosyvoice_runtime.checkpoint.config_lm import LAYER_NORM_EPS, SpeechLMConfig, TransformerLMConfig
from cosyvoice_runtime.flow.torch.encoder import RelativeEncoder, ScaledEmbedding, relative_positions
from cosyvoice_runtime.flow.torch.layers import embedding
from cosyvoice_runtime.flow.weights import ENCODER_RENAMES, fused_projections, renamed
from cosyvoice_runtime.gpu.transfer import integers
from cosyvoice_runtime.lm.prompt import PromptSegment, Table
from cosyvoice_runtime.lm.torch.kv_cache import CacheView, PassPages
from cosyvoice_runtime.lm.torch.speech_decoder import SpeechDecoder

TABLE_STEP = 512
"""Distances by which a layer's table grows."""
_RENAMES = [
    *ENCODER_RENAMES,
    (r"^llm_embedding\.", "control_embedding."),
    (r"^llm_decoder\.", "head."),
    (r"^llm\.", ""),
    (r"^text_encoder_affine_layer\.", "text_projection."),
    (r"^spk_embed_affine_layer\.", "speaker_projection."),
]


class Distances(NamedTuple):
    """Positions that queries may see, and their distance; the same for all layers.

    behind: [B, 1, T, span] int64, positions from each key to the query, 0 for later keys; mask:
    like it, 0 or -inf.
    """

    behind: Tensor
    mask: Tensor

    @classmethod
    def of(cls, positions: Tensor, span: int, dtype: torch.dtype) -> Distances:
        behind = positions[..., None] - torch.arange(span, device=positions.device)
        mask = torch.zeros(behind.shape, device=behind.device, dtype=dtype)
        mask.masked_fill_(behind < 0, float("-inf"))
        return cls(behind.clamp(min=0)[:, None], mask[:, None])


class DistanceAttention(nn.Module):
    """Attention over the cache with Transformer-XL relative positions."""

    def __init__(self, config: TransformerLMConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.heads, self.head_dim = config.num_heads, config.head_dim
        self.qkv = nn.Linear(width, 3 * width)
        self.position = nn.Linear(width, width, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(self.heads, self.head_dim))
        self.position_bias = nn.Parameter(torch.zeros(self.heads, self.head_dim))
        self.out = nn.Linear(width, width)
        self._table: Tensor | None = None

    def forward(self, x: Tensor, layer: int, distances: Distances, pages: PassPages) -> Tensor:
        """``x [B, T, width]`` to the same shape."""
        queries, new_keys, new_values = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        pages.write(layer, new_keys, new_values)
        keys, values = pages.read(layer)
        mixed = F.scaled_dot_product_attention(
            (queries + self.content_bias).transpose(1, 2),
            keys,
            values,
            attn_mask=self._bias(queries, distances),
        )
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _bias(self, queries: Tensor, distances: Distances) -> Tensor:
        """[B, heads, T, span], added to scaled scores."""
        table = self.distances(distances.mask.shape[-1])
        by_distance = torch.einsum("bthd,rhd->bhtr", queries + self.position_bias, table)
        scores = by_distance.gather(-1, distances.behind.expand(-1, self.heads, -1, -1))
        return scores / math.sqrt(self.head_dim) + distances.mask

    def distances(self, span: int) -> Tensor:
        """Projected sinusoids of distances 0 to ``span - 1``, [span, heads, D]."""
        if self._table is None or len(self._table) < span:
            rows = -(-span // TABLE_STEP) * TABLE_STEP
            weight = self.position.weight
            sinusoids = relative_positions(1, rows, weight.shape[0], weight.device).flip(0)
            self._table = self.position(sinusoids.to(weight.dtype)).unflatten(-1, (self.heads, -1))
        return self._table[:span]


class DistanceLayer(nn.Module):
    """Pre-norm attention and a ReLU feed-forward."""

    def __init__(self, config: TransformerLMConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.norm_attention = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.attention = DistanceAttention(config)
        self.norm_feed_forward = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.widen = nn.Linear(width, config.intermediate_size)
        self.narrow = nn.Linear(config.intermediate_size, width)

    def forward(self, x: Tensor, layer: int, distances: Distances, pages: PassPages) -> Tensor:
        x = x + self.attention(self.norm_attention(x), layer, distances, pages)
        return x + self.narrow(F.relu(self.widen(self.norm_feed_forward(x))))


class TransformerLM(SpeechDecoder):
    """Encoded text, a speaker and speech tokens in, logits over the speech rows out."""

    config: TransformerLMConfig

    def __init__(self, config: TransformerLMConfig) -> None:
        super().__init__(config)
        width = config.input_width
        self.text_embedding = embedding(config.text_vocab_size, config.text_width)
        self.text_encoder = RelativeEncoder(config.text_encoder)
        self.text_projection = nn.Linear(config.text_encoder.width, width)
        self.control_embedding = embedding(2, width)
        self.speaker_projection = nn.Linear(config.speaker_dim, width)
        self.speech_embedding = embedding(config.speech_tokens, width)
        self.embed_input = ScaledEmbedding(width, config.hidden_size)
        self.layers = nn.ModuleList(DistanceLayer(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.hidden_size, eps=1e-5)
        self.head = nn.Linear(config.hidden_size, config.speech_rows)

    @staticmethod
    def own_tensors(
        config: SpeechLMConfig,  # noqa: ARG004
        tensors: Mapping[str, Tensor],
        convert: Callable[[Tensor], Tensor],
    ) -> dict[str, Tensor]:
        """Tensors under this network's names, with joined projections, which lie apart in ``llm.pt``."""
        state = fused_projections(renamed(as_arrays(tensors), _RENAMES))
        return {_of_layer(name): convert(torch.from_numpy(array)) for name, array in state.items()}

    def prepare(self, max_len: int) -> None:
        """Project the distances of all layers, whose tables captured passes read in place."""
        for layer in self.layers:
            cast(DistanceLayer, layer).attention.distances(max_len)

    def decode_step(self, tokens: Tensor, positions: Tensor, cache: CacheView, span: int) -> Tensor:
        """Feed tokens as every decoder does; one that has drawn the end may be fed it, which has no row."""
        return super().decode_step(tokens.clamp(max=self.config.speech_tokens - 1), positions, cache, span)

    def embed(self, segments: Sequence[PromptSegment]) -> Tensor:
        """Embeddings [T, input width] of segments, in order; the text of each is encoded together."""
        return torch.cat([self._embedded(segment) for segment in segments])

    def encode_text(self, ids: Tensor) -> Tensor:
        """Text ids int64 ``[B, T]`` to ``[B, T, input width]``; no position sees a later one."""
        encoded: Tensor = self.text_projection(self.text_encoder(self.text_embedding(ids), causal=True))
        return encoded

    def forward(self, embeddings: Tensor, positions: Tensor, cache: CacheView, span: int) -> Tensor:
        x = F.relu(self.embed_input(embeddings))
        distances, pages = Distances.of(positions, span, x.dtype), cache.at(positions, span)
        for index, layer in enumerate(self.layers):
            x = layer(x, index, distances, pages)
        return self.norm(x)

    def _embedded(self, segment: PromptSegment) -> Tensor:
        if segment.table is Table.SPEAKER:
            [speaker] = segment.ids
            vector = torch.tensor(speaker, dtype=torch.float32, device=self.device)
            return self.speaker_projection(F.normalize(vector, dim=0).to(self.dtype))[None]
        ids = integers(segment.ids, self.device)
        if segment.table is Table.TEXT:
            return self.encode_text(ids[None])[0]
        table = self.control_embedding if segment.table is Table.CONTROL else self.speech_embedding
        embedded: Tensor = table(ids)
        return embedded


def _of_layer(name: str) -> str:
    """Names of the decoder's input layer and of its attention."""
    if name.startswith("embed."):
        return f"embed_input.{name.removeprefix('embed.')}"
    if name.startswith("layers.") and name.split(".")[2] in ATTENTION_PARTS:
        layers, index, part = name.split(".", 2)
        return f"{layers}.{index}.attention.{part}"
    return name


ATTENTION_PARTS = ("qkv", "position", "out", "content_bias", "position_bias")
