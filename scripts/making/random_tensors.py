"""Random weights that keep signals in the range a trained model's would have.

Every tensor has its own generator, seeded by the checkpoint's seed and the tensor's name: the values do
not depend on order, thread count or torch's version.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator

import numpy as np
import torch

from cosyvoice_runtime.checkpoint.config import ModelConfig, VocoderConfig
from cosyvoice_runtime.checkpoint.layout import Part
from cosyvoice_runtime.checkpoint.schema import Shape, part_schema
from cosyvoice_runtime.checkpoint.tensors import TEXT_HEAD
from cosyvoice_runtime.families import load, speech_lm_parts

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]

MEAN_LOG_MEL = -6.0
"""Level that the flow writes and the vocoder expects; log-mels of speech lie between -11.5 and 2."""
MEAN_F0_HZ = 180.0
ROTARY_BASE = np.float32(10_000)
MEAN_LOG_MAGNITUDE = -0.7
"""Level of the short-time spectrum that the vocoder writes: a waveform of about 0.07 rms."""

SPREADS: tuple[tuple[str, float], ...] = (
    # Residual branches: kept small so that a deep stack stays near the size of its input.
    (r"self_attn\.o_proj|mlp\.down_proj", 0.5),
    (r"llm_decoder\.weight", 2.0),
    (r"final_proj\.weight|proj_out\.weight", 2.0),
    (r"f0_predictor\.classifier\.weight", 120.0),
    (r"m_source\.l_linear\.weight", 3.0),
    (r"source_downs\.\d+\.weight", 3.0),
)
"""Standard deviation times the square root of the fan-in, where it is not 1."""


def random_tensors(part: Part, config: ModelConfig, seed: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and float32 tensor of everything in ``<part>.pt``, in the order of its schema.

    The text head is left out: it is the text table.
    """
    for name, shape in part_schema(part, config).items():
        if name == TEXT_HEAD:
            continue
        array = _tensor(name, shape, config.vocoder, seed)
        if part == "llm":
            load(speech_lm_parts(config.speech_lm).made_length)(name, array, config.speech_lm)
        yield name, torch.from_numpy(array)


def _tensor(name: str, shape: Shape, vocoder: VocoderConfig, seed: int) -> Array:
    noise = _noise(name, shape, seed)
    if name.endswith("rotary_embed.inv_freq"):
        return ROTARY_BASE ** -(np.arange(shape[0], dtype=np.float32) / np.float32(shape[0]))
    if name.endswith("original0"):
        return _gain(name, shape, vocoder) * (1 + 0.1 * noise)
    if name in ("conv_pre.bias", "f0_predictor.condnet.0.bias"):
        return 0.1 * noise - _level_shift(name, shape, vocoder, seed)
    if name.endswith(("original1", "embedding.weight", "embed_tokens.weight")):
        return noise
    if name.endswith(".alpha") or (len(shape) == 1 and name.endswith("weight")):
        return 1 + 0.1 * noise
    if len(shape) == 1:
        return _mean_bias(name, shape) + 0.1 * noise
    return noise * np.float32(_spread(name) / math.sqrt(math.prod(shape[1:])))


def _noise(name: str, shape: Shape, seed: int) -> Array:
    generator = np.random.Generator(np.random.PCG64([seed, zlib.crc32(name.encode())]))
    return generator.standard_normal(shape, dtype=np.float32)


def _spread(name: str) -> float:
    return next((spread for pattern, spread in SPREADS if re.search(pattern, name)), 1.0)


def _mean_bias(name: str, shape: Shape) -> Array:
    mean = np.zeros(shape, dtype=np.float32)
    if name.endswith(("final_proj.bias", "proj_out.bias")):
        mean[:] = MEAN_LOG_MEL
    elif name == "f0_predictor.classifier.bias":
        mean[:] = MEAN_F0_HZ
    elif name == "conv_post.bias":
        mean[: shape[0] // 2] = MEAN_LOG_MAGNITUDE
    return mean


def _gain(name: str, shape: Shape, vocoder: VocoderConfig) -> Array:
    """Mean norm of a weight-normed convolution's filters."""
    gain = np.ones(shape, dtype=np.float32)
    stage = re.match(r"ups\.(\d+)\.", name)
    if stage and vocoder.transposed_upsampling:
        # A transposed convolution of stride s spreads each input over s outputs of half the channels.
        gain *= 1.3 * math.sqrt(vocoder.upsample_rates[int(stage[1])] / 2)
    elif ".convs2." in name:
        gain *= 0.5
    elif name.startswith("conv_post"):
        # Log-magnitudes first, then phases: loudness moves little, the waveform's shape much.
        gain[: shape[0] // 2] = 0.1
        gain[shape[0] // 2 :] = 0.3
    return gain


def _level_shift(name: str, shape: Shape, vocoder: VocoderConfig, seed: int) -> Array:
    """The share of a constant mel at the mean level in each output of a weight-normed convolution."""
    weight = name.replace("bias", "parametrizations.weight")
    channels = shape[0]
    kernel = vocoder.first_kernel if name.startswith("conv_pre") else vocoder.first_f0_kernel
    gain = _tensor(f"{weight}.original0", (channels, 1, 1), vocoder, seed).reshape(channels)
    direction = _tensor(f"{weight}.original1", (channels, vocoder.mel_bins, kernel), vocoder, seed)
    sums, norms = direction.sum(axis=(1, 2)), np.linalg.norm(direction.reshape(channels, -1), axis=1)
    return np.float32(MEAN_LOG_MEL) * gain * sums / norms
