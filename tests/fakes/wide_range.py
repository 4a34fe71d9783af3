"""Made weights whose numbers reach as far as those of published ones, which random weights never do."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.flow.voice_flow import FlowPrompt
from prompts import prompt_of_tensors

TURNS = 2 * math.pi * 256
"""Whole turns, in radians: near them float16 has one number a radian, bfloat16 one in eight."""


def turned_vocoder(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A vocoder whose phases are so many turns further, which no sine hears."""
    bias = tensors["conv_post.bias"].clone()
    bias[len(bias) // 2 :] += TURNS
    return {**tensors, "conv_post.bias": bias}


DIT = "decoder.estimator"
BRANCH = 1 / 64
"""Part of a large channel that a layer gives; the rest is the gate's."""
CHANNELS = 3, 40
"""Large channels, of opposite signs: their mean is zero."""
SHIFT, SCALE, GATE, WIDE_SHIFT, WIDE_SCALE, WIDE_GATE = range(6)
"""Order of what the time gives to a block of CosyVoice3."""


def wide_dit(tensors: Mapping[str, Tensor], largest: float, depth: int) -> dict[str, Tensor]:
    """A flow of CosyVoice3 whose residual has channels of this size from the first attention on.

    As in trained ones a gate makes them, they hardly change from frame to frame, and the norms that follow
    scale all others up again by what these take from them.
    """
    changed = dict(tensors)
    first = f"{DIT}.transformer_blocks.0"
    width = len(changed[f"{first}.attn.to_out.0.bias"])
    for channel, sign in zip(CHANNELS, (1, -1), strict=True):
        _fix(changed, f"{first}.attn.to_out.0", [channel], sign * largest * BRANCH)
    for block in range(depth):
        name = f"{DIT}.transformer_blocks.{block}.attn_norm.linear"
        for part in (SCALE, WIDE_SCALE)[block == 0 :]:
            _amplify(changed, name, part * width, width, largest)
    _fix(changed, f"{first}.attn_norm.linear", [GATE * width + channel for channel in CHANNELS], 1 / BRANCH)
    _amplify(changed, f"{DIT}.norm_out.linear", 0, width, largest)
    return changed


def _amplify(tensors: dict[str, Tensor], name: str, start: int, width: int, largest: float) -> None:
    """Let a norm scale what is not large by the factor that it lost, 1 included in the scale."""
    weight, bias = (tensors[f"{name}.{part}"].clone() for part in ("weight", "bias"))
    others = [start + channel for channel in range(width) if channel not in CHANNELS]
    factor = largest * math.sqrt(len(CHANNELS) / width)
    weight[others] *= factor
    bias[others] = (1 + bias[others]) * factor - 1
    tensors |= {f"{name}.weight": weight, f"{name}.bias": bias}


def _fix(tensors: dict[str, Tensor], name: str, rows: list[int], value: float) -> None:
    weight, bias = (tensors[f"{name}.{part}"].clone() for part in ("weight", "bias"))
    weight[rows], bias[rows] = 0.0, value
    tensors |= {f"{name}.weight": weight, f"{name}.bias": bias}


def loud_dit(tensors: Mapping[str, Tensor], factor: float, depth: int) -> dict[str, Tensor]:
    """The same flow of CosyVoice3: norms give two channels ``factor`` times larger, the layers behind undo
    it."""
    changed = dict(tensors)
    blocks = [f"{DIT}.transformer_blocks.{block}" for block in range(depth)]
    for block in blocks:
        layers = [f"{block}.attn.to_{part}" for part in "qkv"]
        _louder(changed, f"{block}.attn_norm.linear", SCALE, SHIFT, layers, factor)
        _louder(changed, f"{block}.attn_norm.linear", WIDE_SCALE, WIDE_SHIFT, [f"{block}.ff.ff.0.0"], factor)
    _louder(changed, f"{DIT}.norm_out.linear", 0, 1, [f"{DIT}.proj_out"], factor)
    return changed


def _louder(
    tensors: dict[str, Tensor], name: str, scale: int, shift: int, readers: list[str], factor: float
) -> None:
    width = tensors[f"{readers[0]}.weight"].shape[1]
    weight, bias = (tensors[f"{name}.{part}"].clone() for part in ("weight", "bias"))
    for channel in CHANNELS:
        for row, one in ((scale * width + channel, 1.0), (shift * width + channel, 0.0)):
            weight[row] *= factor
            bias[row] = (one + bias[row]) * factor - one
    tensors |= {f"{name}.weight": weight, f"{name}.bias": bias}
    for reader in readers:
        read = tensors[f"{reader}.weight"].clone()
        read[:, list(CHANNELS)] /= factor
        tensors[f"{reader}.weight"] = read


def wide_unet(tensors: Mapping[str, Tensor], largest: float, mids: int) -> dict[str, Tensor]:
    """A flow of CosyVoice2 whose residuals have channels of this size behind the first attention of each
    stage; what reads a stage's end leaves them out."""
    changed = dict(tensors)
    stages = ["down_blocks.0", *(f"mid_blocks.{index}" for index in range(mids)), "up_blocks.0"]
    for stage in stages:
        block = f"{DIT}.{stage}.1.0"
        width = len(changed[f"{block}.attn1.to_out.0.bias"])
        for channel, sign in zip(CHANNELS, (1, -1), strict=True):
            _fix(changed, f"{block}.attn1.to_out.0", [channel], sign * largest)
        others = [channel for channel in range(width) if channel not in CHANNELS]
        norms = changed[f"{block}.norm3.weight"].clone()
        norms[others] *= largest * math.sqrt(len(CHANNELS) / width)
        changed[f"{block}.norm3.weight"] = norms
    resnets = [f"{stage}.0.{layer}" for stage in stages[1:] for layer in ("block1.block.0", "res_conv")]
    for reader in ("down_blocks.0.2", "up_blocks.0.2", *resnets):
        weight = changed[f"{DIT}.{reader}.weight"].clone()
        for start in range(0, weight.shape[1], width):
            weight[:, [start + channel for channel in CHANNELS]] = 0
        changed[f"{DIT}.{reader}.weight"] = weight
    return changed


LLM = "llm.model.model"


def wide_lm(tensors: Mapping[str, Tensor], largest: float, layers: int) -> dict[str, Tensor]:
    """A speech LM whose embeddings have channels of this size, and four times as much at the start of the
    sequence; its norms scale all others up again."""
    changed = dict(tensors)
    tables = ["speech_embedding", "llm_embedding", f"{LLM}.embed_tokens"]
    for name in (f"{table}.weight" for table in tables if f"{table}.weight" in tensors):
        table = changed[name].clone()
        table[:, list(CHANNELS)] = largest
        if name.startswith("llm_embedding"):
            table[0, list(CHANNELS)] = 4 * largest  # the row of the start
        changed[name] = table
    norms = [f"{LLM}.norm"]
    for layer in range(layers):
        norms += [f"{LLM}.layers.{layer}.{name}_layernorm" for name in ("input", "post_attention")]
    for name in (f"{norm}.weight" for norm in norms):
        scale = changed[name].clone()
        others = [channel for channel in range(len(scale)) if channel not in CHANNELS]
        scale[others] *= largest * math.sqrt(len(CHANNELS) / len(scale))
        changed[name] = scale
    return changed


def made_prompt(config: FlowConfig, tokens: int) -> FlowPrompt:
    """A voice whose mel has the level of speech."""
    generator = torch.Generator().manual_seed(0)
    return prompt_of_tensors(
        torch.randint(config.token_vocab_size, (tokens,), generator=generator),
        2 * torch.randn(config.frames_per_token * tokens, config.mel_bins, generator=generator) - 6,
        torch.randn(config.speaker_dim, generator=generator),
    )


def error(found: Tensor, expected: Tensor) -> float:
    """The root of the mean square of the difference, over that of what is expected."""
    wanted = expected.double()
    return float((found.double() - wanted).norm() / wanted.norm())
