"""Names and shapes of the tensors of ``hift.pt``."""

from __future__ import annotations

from itertools import accumulate
from operator import mul

from cosyvoice_runtime.checkpoint.config_vocoder import VocoderConfig
from cosyvoice_runtime.checkpoint.shapes import Schema, Shape, convolution, linear, prefixed

F0_CONVOLUTIONS = 5
"""Convolutions of the F0 predictor, at the even places of its ``condnet`` (activations between them)."""


def vocoder_schema(config: VocoderConfig) -> Schema:
    """``hift.pt``: source module, upsampling stages with their residual blocks, and the F0 predictor."""
    schema = {
        **linear("m_source.l_linear", 1, config.num_harmonics + 1),
        **_normed_convolution("conv_pre", config.base_channels, config.mel_bins, config.first_kernel),
    }
    kernels, dilations = config.resblock_kernels, config.resblock_dilations
    for stage in range(len(config.upsample_kernels)):
        channels = config.base_channels >> (stage + 1)
        schema |= _normed_weight(f"ups.{stage}", config.upsampling_shape(stage), bias=channels)
        schema |= _source_branch(config, stage, channels)
        for block, (size, steps) in enumerate(zip(kernels, dilations, strict=True)):
            schema |= _resblock(f"resblocks.{stage * len(kernels) + block}", channels, size, len(steps))
    channels = config.base_channels >> len(config.upsample_kernels)
    schema |= _normed_convolution("conv_post", config.istft_size + 2, channels, 7)
    return schema | prefixed("f0_predictor", _f0_predictor(config))


def source_strides(config: VocoderConfig) -> list[int]:
    """Stride of the source branch into each stage: what the later stages still upsample by."""
    return list(accumulate((1, *config.upsample_rates[:0:-1]), mul))[::-1]


def _source_branch(config: VocoderConfig, stage: int, channels: int) -> Schema:
    stride = source_strides(config)[stage]
    return {
        **convolution(
            f"source_downs.{stage}", channels, config.istft_size + 2, 1 if stride == 1 else 2 * stride
        ),
        **_resblock(
            f"source_resblocks.{stage}",
            channels,
            config.source_kernels[stage],
            len(config.source_dilations[stage]),
        ),
    }


def _resblock(name: str, channels: int, kernel: int, depth: int) -> Schema:
    schema: Schema = {}
    for layer in range(depth):
        schema |= _normed_convolution(f"{name}.convs1.{layer}", channels, channels, kernel)
        schema |= _normed_convolution(f"{name}.convs2.{layer}", channels, channels, kernel)
        schema[f"{name}.activations1.{layer}.alpha"] = (channels,)
        schema[f"{name}.activations2.{layer}.alpha"] = (channels,)
    return schema


def _f0_predictor(config: VocoderConfig) -> Schema:
    width = config.f0_channels
    schema: Schema = {}
    for layer in range(F0_CONVOLUTIONS):
        in_channels = width if layer else config.mel_bins
        kernel = 3 if layer else config.first_f0_kernel
        schema |= _normed_convolution(f"condnet.{2 * layer}", width, in_channels, kernel)
    return schema | linear("classifier", 1, width)


def _normed_convolution(name: str, out_channels: int, in_channels: int, kernel: int) -> Schema:
    return _normed_weight(name, (out_channels, in_channels, kernel), bias=out_channels)


def _normed_weight(name: str, shape: Shape, bias: int) -> Schema:
    """A weight-normed convolution: gain ``original0`` along the first axis, direction ``original1``."""
    weight = f"{name}.parametrizations.weight"
    return {
        f"{name}.bias": (bias,),
        f"{weight}.original0": (shape[0], 1, 1),
        f"{weight}.original1": shape,
    }
