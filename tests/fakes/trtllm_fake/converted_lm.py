"""A forward pass that knows a converted checkpoint only: its config.json and TensorRT-LLM's tensor names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F


class ConvertedLM:
    """All GPUs of a checkpoint computed one after the other, and put together as TensorRT-LLM does."""

    def __init__(self, directory: str | Path) -> None:
        directory = Path(directory)
        self.config = json.loads((directory / "config.json").read_text())
        self.ranks = [
            {
                name: tensor.float()
                for name, tensor in load_file(directory / f"rank{rank}.safetensors").items()
            }
            for rank in range(self.config["mapping"]["tp_size"])
        ]

    @torch.no_grad()
    def __call__(self, ids: Sequence[int]) -> Tensor:
        """Logits [T, V] after each of the ids."""
        x = F.embedding(torch.tensor(ids), self._replicated("transformer.vocab_embedding.weight"))
        for layer in range(self.config["num_hidden_layers"]):
            prefix = f"transformer.layers.{layer}"
            normed = self._norm(x, f"{prefix}.input_layernorm.weight")
            x = x + sum(self._attention(rank, prefix, normed) for rank in self.ranks)
            normed = self._norm(x, f"{prefix}.post_layernorm.weight")
            x = x + sum(self._mlp(rank, prefix, normed) for rank in self.ranks)
        x = self._norm(x, "transformer.ln_f.weight")
        heads = [F.linear(x, rank["lm_head.weight"], rank.get("lm_head.bias")) for rank in self.ranks]
        return torch.cat(heads, dim=-1)

    def _replicated(self, name: str) -> Tensor:
        first, *others = (rank[name] for rank in self.ranks)
        assert all(torch.equal(first, other) for other in others)
        return first

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self._replicated(name), self.config["norm_epsilon"])

    def _attention(self, rank: dict[str, Tensor], prefix: str, x: Tensor) -> Tensor:
        size, gpus = self.config["head_size"], len(self.ranks)
        heads, kv_heads = (self.config[f"num_{kind}_heads"] // gpus for kind in ("attention", "key_value"))
        qkv = (
            self._product(rank, f"{prefix}.attention.qkv", x)
            .view(len(x), heads + 2 * kv_heads, size)
            .transpose(0, 1)
        )
        q, k, v = qkv.split([heads, kv_heads, kv_heads])
        k, v = (part.repeat_interleave(heads // kv_heads, 0) for part in (self._rotated(k), v))
        mixed = F.scaled_dot_product_attention(self._rotated(q), k, v, is_causal=True)
        mixed = mixed.transpose(0, 1).reshape(len(x), heads * size)
        return self._product(rank, f"{prefix}.attention.dense", mixed)

    def _rotated(self, x: Tensor) -> Tensor:
        """``rope_gpt_neox``: the two halves of a head are the pairs."""
        size = x.shape[-1]
        steps = self.config["rotary_base"] ** (-torch.arange(0, size, 2) / size)
        angles = torch.arange(x.shape[1])[:, None] * torch.cat([steps, steps])
        first, second = x.chunk(2, dim=-1)
        return x * angles.cos() + torch.cat([-second, first], dim=-1) * angles.sin()

    def _mlp(self, rank: dict[str, Tensor], prefix: str, x: Tensor) -> Tensor:
        inner = F.silu(self._product(rank, f"{prefix}.mlp.fc", x))
        inner = inner * self._product(rank, f"{prefix}.mlp.gate", x)
        return self._product(rank, f"{prefix}.mlp.proj", inner)

    def _product(self, rank: dict[str, Tensor], module: str, x: Tensor) -> Tensor:
        """As ``FP8Linear`` where there are scales: the input in 8 bits, times the weight in 8 bits."""
        weight, bias = rank[f"{module}.weight"], rank.get(f"{module}.bias")
        if f"{module}.weights_scaling_factor" in rank:
            weight = weight * rank[f"{module}.weights_scaling_factor"]
            scale = rank[f"{module}.activation_scaling_factor"]
            limit = torch.finfo(torch.float8_e4m3fn).max
            x = (x / scale).clamp(-limit, limit).to(torch.float8_e4m3fn).float() * scale
        return F.linear(x, weight, bias)
