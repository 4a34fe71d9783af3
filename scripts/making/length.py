"""An end of speech that comes in time, written into otherwise random speech language model weights.

Random weights know no duration: an utterance would stop by chance or at the limit. Here one attention head
of the first layer counts. Its scores are 0, so it averages over all positions a mark that speech tokens
carry with +1 and text tokens with -TOKENS_PER_TEXT_TOKEN: the average crosses 0 when that many speech tokens
per text token have been spoken. Nothing else writes the hidden unit that receives it, and the logit of the
end-of-speech row rises with it. Where the output head has no bias, another hidden unit that nothing writes is
the same at every position, and takes the bias's place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig

TOKENS_PER_TEXT_TOKEN = 7.0
"""Speech tokens (25 a second) for each text token at which end of speech is as likely as going on."""
MARK, COUNT, CONSTANT = 0, 1, 2
"""Hidden units: the mark, its running average, and one that is the same at every position."""
MARK_SIZE = 0.25
COUNT_GAIN = 4.0
END_SLOPE = 40.0
END_BIAS = 9.0
"""Near the largest of 6561 logits of standard deviation 2."""
OTHER_STOPS_BIAS = -20.0
CONSTANT_LEVEL = 0.5
"""Size of the constant unit after the final norm, about."""

Array = np.ndarray[tuple[int, ...], np.dtype[Any]]


def shape_length(name: str, tensor: Array, config: SpeechLMConfig) -> None:
    """Change one tensor of ``llm.pt`` in place where the counting head or the stop logits need it."""
    if name == "speech_embedding.weight":
        _mark(tensor, MARK_SIZE)
    elif name.endswith("embed_tokens.weight"):
        _mark(tensor, -MARK_SIZE * TOKENS_PER_TEXT_TOKEN)
    elif name == "llm_embedding.weight":
        _mark(tensor, 0.0)
    elif name.startswith("llm_decoder"):
        _stop_rows(name, tensor, config)
    elif name.endswith(("o_proj.weight", "down_proj.weight")):
        tensor[COUNT] = 0.0
    if ".layers.0.self_attn." in name:
        _counting_head(name.rpartition("self_attn.")[2], tensor, config.head_dim)
    if not config.head_bias:
        _constant_unit(name, tensor, config)


def _mark(table: Array, size: float) -> None:
    table[:, MARK] = size
    table[:, COUNT] = 0.0


def _counting_head(name: str, tensor: Array, head_dim: int) -> None:
    """Head 0 attends evenly; channel 0 of its values is the mark, and goes to the count."""
    if name.startswith("q_proj"):
        tensor[:head_dim] = 0.0
    elif name.startswith("v_proj"):
        tensor[0] = 0.0
        if tensor.ndim == 2:
            tensor[0, MARK] = 1.0
    elif name == "o_proj.weight":
        tensor[COUNT, 0] = COUNT_GAIN


def _stop_rows(name: str, tensor: Array, config: SpeechLMConfig) -> None:
    end, others = config.eos_id, [row for row in config.stop_ids if row != config.eos_id]
    if name.endswith("bias"):
        tensor[end], tensor[others] = END_BIAS, OTHER_STOPS_BIAS
    else:
        tensor[:, COUNT] = 0.0
        tensor[[end, *others]] = 0.0
        tensor[end, COUNT] = END_SLOPE


def _constant_unit(name: str, tensor: Array, config: SpeechLMConfig) -> None:
    if name.endswith(("speech_embedding.weight", "embed_tokens.weight")):
        tensor[:, CONSTANT] = 1.0
    elif name.endswith(("o_proj.weight", "down_proj.weight")):
        tensor[CONSTANT] = 0.0
    elif name == "llm_decoder.weight":
        tensor[:, CONSTANT] = 0.0
        tensor[list(config.stop_ids), CONSTANT] = OTHER_STOPS_BIAS / CONSTANT_LEVEL
        tensor[config.eos_id, CONSTANT] = END_BIAS / CONSTANT_LEVEL
