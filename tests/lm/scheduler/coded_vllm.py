"""A network for vLLM's stand-in whose tokens tell whose they are, and the one that was exported."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from coded_utterances import ENDLESS, code
from safetensors.torch import load_file
from torch import Tensor

from cosyvoice_runtime.lm.engines.vllm.export import PROMPT_TABLES
from vllm_fake.install import Model

SPEECH_TOKENS = 6561


class CodedModel:
    """Certain of what comes next; prompts hold a name as their only text, and no speech.

    Args:
        lengths: codes of each utterance; those not here never end.
        stop: which of the three stop ids ends it.
    """

    def __init__(self, directory: str, lengths: dict[int, int], stop: int = 0) -> None:
        self._text = load_file(Path(directory) / PROMPT_TABLES)["text"]
        self._rows = json.loads(Path(directory, "config.json").read_text())["vocab_size"]
        self._lengths, self._stop = lengths, stop

    def name(self, embeds: Tensor) -> int:
        return int((self._text == embeds[1]).all(dim=1).nonzero()[0, 0])

    def __call__(self, embeds: Tensor, ids: Sequence[int]) -> Tensor:
        logits = torch.zeros(self._rows)
        name = self.name(embeds)
        ended = len(ids) == self._lengths.get(name, ENDLESS)
        logits[SPEECH_TOKENS + self._stop if ended else code(name, len(ids))] = 40.0
        return logits


class ExportedLM:
    """Transformers' Qwen2 with the exported names, and the head's bias on top."""

    def __init__(self, directory: str | Path) -> None:
        from transformers import Qwen2Config, Qwen2Model  # It takes seconds, and few test files need it.

        content = json.loads(Path(directory, "config.json").read_text())
        tensors = load_file(Path(directory, "model.safetensors"))
        self.head = {name: tensors.pop(f"lm_head.{name}").float() for name in ("weight", "bias")}
        config = Qwen2Config(**{name: value for name, value in content.items() if name != "architectures"})
        config.torch_dtype = None
        self.network = Qwen2Model(config).float().eval()
        self.network.load_state_dict({name.removeprefix("model."): one for name, one in tensors.items()})

    @torch.inference_mode()
    def logits(self, embeds: Tensor, ids: Sequence[int]) -> Tensor:
        """Logits [positions, rows] of prompt embeddings [positions, hidden] and of ids after them."""
        generated = self.network.embed_tokens(torch.tensor(ids, dtype=torch.int64))
        joined = torch.cat([embeds.float(), generated])
        hidden = self.network(inputs_embeds=joined[None], use_cache=False).last_hidden_state[0]
        return torch.nn.functional.linear(hidden, **self.head)


def exported_model(directory: str) -> Model:
    network = ExportedLM(directory)
    return lambda embeds, ids: network.logits(embeds, ids)[-1]
