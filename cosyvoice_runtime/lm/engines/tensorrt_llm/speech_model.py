"""TensorRT-LLM's Qwen2 with an output head over speech only; loaded by ``trtllm-build --model_cls_file``.

That loader gives the file another module name, so it can import nothing relative to itself.
"""

from __future__ import annotations

from typing import Any

from tensorrt_llm.layers import ColumnLinear, Embedding
from tensorrt_llm.models import QWenForCausalLM


class SpeechQwenForCausalLM(QWenForCausalLM):
    """Head with a bias over ``vocab_size`` rows; embedding of ``embedding_rows`` rows, text behind speech.

    Both replace the stock ones before ``PretrainedModel.__post_init__`` quantises the model and before
    weights are loaded.
    """

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.transformer.vocab_embedding = Embedding(
            config.embedding_rows, config.hidden_size, dtype=config.dtype
        )
        self.lm_head = ColumnLinear(
            config.hidden_size,
            config.vocab_size,
            bias=True,
            dtype=config.dtype,
            tp_group=config.mapping.tp_group,
            tp_size=config.mapping.tp_size,
            gather_output=True,
        )
