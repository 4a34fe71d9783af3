"""``tensorrt_llm.models`` and ``tensorrt_llm.layers`` as far as names and shapes of parameters go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

BUFFERS = ("embed_positions", "rotary_inv_freq", "embed_positions_for_gpt_attention")
"""Parameters of the attention that the network computes itself."""
BITS = {"W8A16": 8, "W4A16": 4}
QUANTISED = ("qkv", "dense", "fc", "gate", "proj")


class Parameter:
    def __init__(self, *shape: int, is_buffer: bool = False) -> None:
        self.shape, self.is_buffer = shape, is_buffer


class Module:
    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        for name, value in vars(self).items():
            if isinstance(value, Parameter):
                yield name, value
            elif isinstance(value, Module):
                yield from ((f"{name}.{inner}", parameter) for inner, parameter in value.named_parameters())

    def modules(self) -> Iterator[tuple[str, Module]]:
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value
                yield from value.modules()


class ModuleList(Module):
    def __init__(self, modules: list[Module]) -> None:
        for place, module in enumerate(modules):
            setattr(self, str(place), module)


class Embedding(Module):
    def __init__(
        self,
        num_embeddings,
        embedding_dim,
        dtype=None,
        tp_size=1,
        tp_group=None,
        sharding_dim=0,
        tp_rank=None,
    ):
        self.weight = Parameter(num_embeddings, embedding_dim)


class ColumnLinear(Module):
    def __init__(
        self,
        in_features,
        out_features,
        bias=True,
        dtype=None,
        tp_group=None,
        tp_size=1,
        gather_output=True,
        is_qkv=False,
        prefer_managed_weight=True,
    ):
        assert isinstance(out_features, int)
        assert out_features % tp_size == 0
        self.weight = Parameter(out_features // tp_size, in_features)
        if bias:
            self.bias = Parameter(out_features // tp_size)


class RowLinear(Module):
    def __init__(self, in_features, out_features, tp_size):
        self.weight = Parameter(out_features, in_features // tp_size)


class RmsNorm(Module):
    def __init__(self, width):
        self.weight = Parameter(width)


class Layer(Module):
    def __init__(self, config) -> None:
        width, inner, gpus = config.hidden_size, config.intermediate_size, config.mapping.tp_size
        attended = config.num_attention_heads * config.head_size
        joined = attended + 2 * config.num_key_value_heads * config.head_size
        self.input_layernorm = RmsNorm(width)
        self.attention = Module()
        self.attention.qkv = ColumnLinear(width, joined, bias=config.attn_bias, tp_size=gpus)
        self.attention.dense = RowLinear(attended, width, gpus)
        for name in BUFFERS:
            setattr(self.attention, name, Parameter(config.max_position_embeddings, is_buffer=True))
        self.mlp = Module()
        self.mlp.fc = ColumnLinear(width, inner, bias=config.mlp_bias, tp_size=gpus)
        self.mlp.gate = ColumnLinear(width, inner, bias=config.mlp_bias, tp_size=gpus)
        self.mlp.proj = RowLinear(inner, width, gpus)
        self.post_layernorm = RmsNorm(width)


class PostInitCaller(type):
    def __call__(cls, *arguments):
        made = super().__call__(*arguments)
        made.quantise()
        return made


class QWenForCausalLM(Module, metaclass=PostInitCaller):
    def __init__(self, config):
        assert config.qwen_type == "qwen2"
        self._config = config
        self.transformer = Module()
        self.transformer.vocab_embedding = Embedding(config.vocab_size, config.hidden_size)
        self.transformer.layers = ModuleList([Layer(config) for _ in range(config.num_hidden_layers)])
        self.transformer.ln_f = RmsNorm(config.hidden_size)
        self.lm_head = ColumnLinear(
            config.hidden_size, config.vocab_size, bias=False, tp_size=config.mapping.tp_size
        )

    def quantise(self) -> None:
        algorithm = self._config.quantization["quant_algo"]
        bits = BITS.get(algorithm)
        for name, module in self.modules():
            if algorithm == "FP8" and name in QUANTISED:  # the weight keeps its shape
                module.activation_scaling_factor, module.weights_scaling_factor = Parameter(1), Parameter(1)
            if bits and name in QUANTISED:
                out_features, in_features = module.weight.shape
                module.weight = Parameter(in_features, out_features * bits // 8)
                module.per_channel_scale = Parameter(out_features)


class PretrainedConfig(SimpleNamespace):
    @classmethod
    def from_checkpoint(cls, ckpt_dir: str) -> PretrainedConfig:
        content = json.loads((Path(ckpt_dir) / "config.json").read_text())
        assert content["architecture"] == "Qwen2ForCausalLM"
        mapping = content.pop("mapping")
        assert mapping["world_size"] == mapping["tp_size"] * mapping["pp_size"]
        mapping = SimpleNamespace(**mapping, rank=0, tp_group=list(range(mapping["tp_size"])))
        return cls(**content, mapping=mapping)

    def set_rank(self, rank: int) -> None:
        assert rank < self.mapping.world_size
        self.mapping.rank = rank
