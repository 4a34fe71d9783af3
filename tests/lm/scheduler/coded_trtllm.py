"""A network for TensorRT-LLM's stand-in whose tokens tell whose they are."""

from __future__ import annotations

import torch
from coded_utterances import ENDLESS, code

from cosyvoice_runtime.checkpoint.merged_vocabulary import SILENT
from cosyvoice_runtime.lm.engines.tensorrt_llm.checkpoint import EngineVocabulary
from trtllm_fake.install import Model


def coded_model(vocabulary: EngineVocabulary, lengths: dict[int, int], stop: int = 0) -> Model:
    """A network that is certain of what comes next; prompts hold a name and no speech."""

    def model(ids):
        logits = torch.zeros(vocabulary.output_rows)
        if vocabulary.layout == "speech":
            logits[vocabulary.speech.stop :] = SILENT
        name, place = ids[1] - vocabulary.text_offset, len(ids) - 3
        ended = place == lengths.get(name, ENDLESS)
        next_id = vocabulary.stop_ids[stop] if ended else vocabulary.speech_offset + code(name, place)
        logits[next_id] = 40.0
        return logits

    return model
