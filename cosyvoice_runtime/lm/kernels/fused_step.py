"""A decode step of the speech LM in fused kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cosyvoice_runtime.gpu.kernels.arithmetic import NOT_CHAINED
from cosyvoice_runtime.gpu.partitions.partition import GpuPart
from cosyvoice_runtime.lm.kernels.layer_pages import CacheLayer, RotaryTable
from cosyvoice_runtime.lm.kernels.step_attention import step_attention
from cosyvoice_runtime.lm.kernels.step_normed import step_gated, step_head, step_qkv
from cosyvoice_runtime.lm.kernels.step_residual import Scaled, step_embed, step_residual
from cosyvoice_runtime.lm.kernels.step_tiles import StepTiles, step_tiles
from cosyvoice_runtime.lm.torch.kv_cache import CacheView
from cosyvoice_runtime.lm.torch.network import DecoderLayer, SpeechLM


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """Weights of a decoder layer: linear ones in the activations' type, norms' weights and biases in float32.

    Tensor cores take both in one type; float16 holds all digits of bfloat16.
    """

    attention_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor

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
    """Computes what :meth:`SpeechLM.decode_step` computes, on the same cache.

    The last bits differ from the plain way: the residual, norms and rotation stay float32 throughout.

    Args:
        max_len: most positions of a slot.
        chained: kernels start while the one before ends (programmatic dependent launch; NVIDIA GPUs of
            compute capability 9.0 and later).
        parts: of the GPU; a step in the stream of one divides its work for few multiprocessors.
    """

    def __init__(self, lm: SpeechLM, max_len: int, chained: bool, parts: Sequence[GpuPart] = ()) -> None:
        config = lm.config
        self._parts = parts
        self._lm, self._chained = lm, chained
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
        """As :meth:`SpeechLM.decode_step`."""
        batch, epsilon = len(tokens), self._lm.config.rms_norm_eps
        tiles = tiles or step_tiles(batch, self._on_part())
        tiles = tiles.fitted(self._lm.config.hidden_size, self._lm.config.intermediate_size)
        memory = StepMemory(self._lm, batch, tiles.splits(batch, span), tiles)
        chained = tiles.trigger if self._chained else NOT_CHAINED
        norms = [layer.attention_norm for layer in self._layers] + [self._norm]
        step_embed(
            tokens, self._lm.speech_embedding.weight, norms[0], memory.x, memory.for_attention, chained
        )
        for index, (layer, following) in enumerate(zip(self._layers, norms[1:], strict=True)):
            place = CacheLayer(cache.data[index, 0], cache.data[index, 1], cache.tables, positions)
            self._layer(layer, following, memory, place, tiles, chained)
        step_head(
            memory.for_attention, self._head, self._head_bias, epsilon, memory.logits, tiles.head, chained
        )
        return memory.logits

    def work(self, batch: int, span: int) -> tuple[int, int]:
        """As :meth:`SpanlessStep.work`: parts of each sequence's keys, on the whole GPU and on a part."""
        return step_tiles(batch).splits(batch, span), step_tiles(batch, on_part=True).splits(batch, span)

    def _on_part(self) -> bool:
        stream = torch.cuda.current_stream(self._lm.device) if self._parts else None
        return any(part.stream == stream for part in self._parts)

    def _layer(
        self,
        layer: LayerWeights,
        following: Tensor,
        memory: StepMemory,
        place: CacheLayer,
        tiles: StepTiles,
        chained: int,
    ) -> None:
        """One layer on the residual; ``following`` is the weight of the norm after it."""
        epsilon = self._lm.config.rms_norm_eps
        parts = memory.mixed, memory.shares
        step_qkv(
            memory.for_attention, layer.qkv, layer.qkv_bias, self._rotation, epsilon,
            memory.queries, place, tiles.qkv, chained,
        )  # fmt: skip
        step_attention(memory.queries, place, *parts, tiles.keys, tiles.attention_warps, chained)
        step_residual(*parts, layer.out, layer.mlp_norm, memory.x, memory.for_mlp, tiles.out, chained)
        step_gated(memory.for_mlp, layer.gate_up, epsilon, memory.inner, tiles.gated, chained)
        step_residual(
            memory.inner[None], memory.shares, layer.down, following,
            memory.x, memory.for_attention, tiles.down, chained,
        )  # fmt: skip
