"""An end of speech that comes in time, written into CosyVoice-300M's otherwise random speech LM.

As in :mod:`~making.length`, head 0 of the first layer averages a mark that
speech carries with one sign and text with the other. Here norms take the mean of all units away, and the
input layer lets nothing negative through. So the mark is carried on a level that a unit beside it has alone,
the count beside a unit that nothing writes, and what is read is the difference of the two.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cosyvoice_runtime.checkpoint.config_lm import TransformerLMConfig

TOKENS_PER_TEXT_TOKEN = 14.0
"""Speech tokens (50 a second) for each text token at which end of speech is as likely as going on."""
MARK, LEVEL, COUNT, ZERO = 0, 1, 2, 3
"""Units: the mark and what it stands upon, its running average and what that stands upon."""
MARK_SIZE = 0.1
LEVEL_SIZE = 4.0
"""More than a text's mark, once the input layer's norm has made it larger or smaller."""
COUNT_GAIN = 10.0
END_SLOPE = 40.0
END_BIAS = 9.0
"""Near the largest of 4097 logits of standard deviation 2."""
TABLES = {
    "speech_embedding.weight": MARK_SIZE,
    "llm_embedding.weight": 0.0,
    "text_encoder_affine_layer.bias": -MARK_SIZE * TOKENS_PER_TEXT_TOKEN,
    "spk_embed_affine_layer.bias": 0.0,
}
"""The unit that writes each kind of position, and its mark."""
FIRST = "llm.encoders.0."

Array = np.ndarray[tuple[int, ...], np.dtype[Any]]


def shape_relative_length(name: str, tensor: Array, config: TransformerLMConfig) -> None:
    """Change one tensor of ``llm.pt`` in place where the counting head or the end's logit needs it."""
    if name in TABLES:
        tensor[..., MARK] = TABLES[name]
    elif name in ("text_encoder_affine_layer.weight", "spk_embed_affine_layer.weight"):
        tensor[MARK] = 0.0
    elif name.startswith("llm.embed."):
        _input_layer(name, tensor)
    elif name.startswith("llm.encoders."):
        _layer(name, tensor, config)
    elif name.startswith("llm.after_norm."):
        tensor[[COUNT, ZERO]] = _norm(name)
    elif name == "llm_decoder.bias":
        tensor[config.eos_id] = END_BIAS
    elif name == "llm_decoder.weight":
        tensor[:, [COUNT, ZERO]] = 0.0
        tensor[config.eos_id] = 0.0
        tensor[config.eos_id, [COUNT, ZERO]] = END_SLOPE, -END_SLOPE


def _input_layer(name: str, tensor: Array) -> None:
    """The mark comes through on its level; nothing comes to the two units of the count."""
    linear = ".out.0." in name
    if linear:
        tensor[[MARK, LEVEL, COUNT, ZERO]] = 0.0
        if name.endswith("weight"):
            tensor[MARK, MARK] = 1.0
    else:
        tensor[[MARK, LEVEL]] = 1.0 if name.endswith("weight") else LEVEL_SIZE
        tensor[[COUNT, ZERO]] = 0.0


def _layer(name: str, tensor: Array, config: TransformerLMConfig) -> None:
    """Head 0 of the first layer attends evenly and writes the count, which nothing else does."""
    if name.endswith((".linear_out.weight", ".linear_out.bias", ".w_2.weight", ".w_2.bias")):
        tensor[[COUNT, ZERO]] = 0.0
    if not name.startswith(FIRST):
        return
    part = name.removeprefix(FIRST)
    if part.startswith("norm1."):
        tensor[[MARK, LEVEL]] = _norm(name)
    elif part.startswith("self_attn.linear_q."):
        tensor[: config.head_dim] = 0.0
    elif part in ("self_attn.pos_bias_u", "self_attn.pos_bias_v"):
        tensor[0] = 0.0
    elif part.startswith("self_attn.linear_v."):
        tensor[0] = 0.0
        if part.endswith("weight"):
            tensor[0, [MARK, LEVEL]] = 1.0, -1.0
    elif part == "self_attn.linear_out.weight":
        tensor[COUNT, 0] = COUNT_GAIN * math.sqrt(config.hidden_size)


def _norm(name: str) -> float:
    """Units that are compared: as if there were no gain and no bias."""
    return 1.0 if name.endswith("weight") else 0.0
