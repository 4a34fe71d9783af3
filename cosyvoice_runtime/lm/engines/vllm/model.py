"""The speech LM as a model of vLLM: Qwen2 over the speech vocabulary, with a biased head."""

from __future__ import annotations

from torch import Tensor
from vllm.config import VllmConfig
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.models.qwen2 import Qwen2ForCausalLM
from vllm.model_executor.models.utils import maybe_prefix


class SpeechQwen2(Qwen2ForCausalLM):
    """vLLM's Qwen2 with a bias in its head, from the files that `export` writes."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.lm_head = ParallelLMHead(
            self.config.vocab_size,
            self.config.hidden_size,
            bias=True,
            quant_config=self.quant_config,
            prefix=maybe_prefix(prefix, "lm_head"),
        )

    def compute_logits(self, hidden_states: Tensor) -> Tensor | None:
        """Logits [sequences, vocabulary] of hidden states [sequences, hidden]."""
        return self.logits_processor(self.lm_head, hidden_states, self.lm_head.bias)
