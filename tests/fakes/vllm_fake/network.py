"""The parts of vLLM's Qwen2 that the speech model is made of, on one GPU."""

from __future__ import annotations

from torch import nn


def maybe_prefix(prefix, name):
    return f"{prefix}.{name}" if prefix else name


class ParallelLMHead(nn.Module):
    def __init__(
        self,
        num_embeddings,
        embedding_dim,
        bias=False,
        params_dtype=None,
        org_num_embeddings=None,
        padding_size=64,
        quant_config=None,
        prefix="",
    ):
        super().__init__()
        assert num_embeddings % padding_size == 0, "padding rows would have no bias"
        head = nn.Linear(embedding_dim, num_embeddings, bias)
        self.weight, self.bias, self.prefix = head.weight, head.bias, prefix


class ModelLogitsProcessor(nn.Module):
    def forward(self, lm_head, hidden_states, embedding_bias=None):
        return nn.functional.linear(hidden_states, lm_head.weight, embedding_bias)


class Qwen2ForCausalLM(nn.Module):
    def __init__(self, *, vllm_config, prefix=""):
        super().__init__()
        self.config = vllm_config.model_config.hf_config
        self.quant_config = None
        self.lm_head = ParallelLMHead(self.config.vocab_size, self.config.hidden_size)
        self.logits_processor = ModelLogitsProcessor()

    def compute_logits(self, hidden_states):
        return self.logits_processor(self.lm_head, hidden_states)
