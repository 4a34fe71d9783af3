"""Names and shapes of a checkpoint's tensors, in the published naming, derived from the architecture."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from operator import mul
from typing import Any

from cosyvoice_runtime.checkpoint.config import (
    EncoderConfig,
    EstimatorConfig,
    FlowConfig,
    ModelConfig,
    SpeechLMConfig,
    VocoderConfig,
)
from cosyvoice_runtime.checkpoint.config_cosyvoice3 import DiTConfig, LookAheadConfig, OneTableSpeechLMConfig
from cosyvoice_runtime.checkpoint.config_cosyvoice300m import (
    RegulatedEncoderConfig,
    ResamplingEstimatorConfig,
    TransformerLMConfig,
)
from cosyvoice_runtime.checkpoint.layout import Part
from cosyvoice_runtime.checkpoint.schema_cosyvoice3 import dit_schema, look_ahead_schema
from cosyvoice_runtime.checkpoint.schema_cosyvoice300m import (
    regulated_encoder_schema,
    resampling_estimator_schema,
    transformer_lm_schema,
)
from cosyvoice_runtime.checkpoint.shapes import Schema as Schema
from cosyvoice_runtime.checkpoint.shapes import Shape as Shape
from cosyvoice_runtime.checkpoint.shapes import convolution, linear, norm, prefixed

F0_CONVOLUTIONS = 5
"""Convolutions of the F0 predictor, at the even places of its ``condnet`` (activations between them)."""


def part_schema(part: Part, config: ModelConfig) -> Schema:
    """Names and shapes of ``<part>.pt``."""
    if part == "llm":
        return llm_schema(config.speech_lm)
    if part == "flow":
        return flow_schema(config.flow)
    return vocoder_schema(config.vocoder)


def llm_schema(config: SpeechLMConfig) -> Schema:
    """``llm.pt``."""
    return _SPEECH_LMS[type(config)](config)


def _qwen2_speech_lm(config: SpeechLMConfig) -> Schema:
    """The Qwen2 decoder, its tied text table, and the speech tables and head."""
    width = config.hidden_size
    schema: Schema = {} if config.control_rows else {"llm_embedding.weight": (2, width)}
    schema["llm.model.model.embed_tokens.weight"] = (config.text_vocab_size, width)
    for layer in range(config.num_layers):
        schema |= prefixed(f"llm.model.model.layers.{layer}", _qwen2_layer(config))
    return schema | {
        "llm.model.model.norm.weight": (width,),
        "llm.model.lm_head.weight": (config.text_vocab_size, width),
        **linear("llm_decoder", config.speech_rows, width, config.head_bias),
        "speech_embedding.weight": (config.speech_rows, width),
    }


def flow_schema(config: FlowConfig) -> Schema:
    """``flow.pt``: token table, speaker projection, what comes before the estimator, and the estimator."""
    return {
        "input_embedding.weight": (config.token_vocab_size, config.token_width),
        **linear("spk_embed_affine_layer", config.mel_bins, config.speaker_dim),
        **_FLOW_PARTS[type(config.encoder)](config.encoder, config),
        **prefixed("decoder.estimator", _FLOW_PARTS[type(config.estimator)](config.estimator, config)),
    }


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


def _qwen2_layer(config: SpeechLMConfig) -> Schema:
    width, key_width = config.hidden_size, config.num_kv_heads * config.head_dim
    return {
        **linear("self_attn.q_proj", width, width),
        **linear("self_attn.k_proj", key_width, width),
        **linear("self_attn.v_proj", key_width, width),
        "self_attn.o_proj.weight": (width, width),
        "mlp.gate_proj.weight": (config.intermediate_size, width),
        "mlp.up_proj.weight": (config.intermediate_size, width),
        "mlp.down_proj.weight": (width, config.intermediate_size),
        "input_layernorm.weight": (width,),
        "post_attention_layernorm.weight": (width,),
    }


def _encoder(config: EncoderConfig, flow: FlowConfig) -> Schema:
    return {
        **prefixed("encoder", _conformer(config, flow)),
        **linear("encoder_proj", flow.mel_bins, config.width),
    }


def _conformer(config: EncoderConfig, flow: FlowConfig) -> Schema:
    width = config.width
    schema = {
        **linear("embed.out.0", width, flow.token_width),
        **norm("embed.out.1", width),
        **norm("after_norm", width),
        **convolution("pre_lookahead_layer.conv1", width, width, flow.lookahead_tokens + 1),
        **convolution("pre_lookahead_layer.conv2", width, width, 3),
        **convolution("up_layer.conv", width, width, 2 * flow.frames_per_token + 1),
        **linear("up_embed.out.0", width, width),
        **norm("up_embed.out.1", width),
    }
    for layer in range(config.num_layers):
        schema |= prefixed(f"encoders.{layer}", _conformer_layer(config))
    for layer in range(config.num_up_layers):
        schema |= prefixed(f"up_encoders.{layer}", _conformer_layer(config))
    return schema


def _conformer_layer(config: EncoderConfig) -> Schema:
    width = config.width
    return {
        "self_attn.pos_bias_u": (config.num_heads, config.head_dim),
        "self_attn.pos_bias_v": (config.num_heads, config.head_dim),
        **linear("self_attn.linear_q", width, width),
        **linear("self_attn.linear_k", width, width),
        **linear("self_attn.linear_v", width, width),
        **linear("self_attn.linear_out", width, width),
        "self_attn.linear_pos.weight": (width, width),
        **linear("feed_forward.w_1", config.feed_forward_width, width),
        **linear("feed_forward.w_2", width, config.feed_forward_width),
        **norm("norm_ff", width),
        **norm("norm_mha", width),
    }


def _estimator(config: EstimatorConfig, flow: FlowConfig) -> Schema:
    width = config.channels
    schema = {
        **linear("time_mlp.linear_1", config.time_width, config.in_channels),
        **linear("time_mlp.linear_2", config.time_width, config.time_width),
        **prefixed("down_blocks.0", _stage(config, config.in_channels)),
        **convolution("down_blocks.0.2", width, width, 3),
    }
    for stage in range(config.num_mid_stages):
        schema |= prefixed(f"mid_blocks.{stage}", _stage(config, width))
    return schema | {
        **prefixed("up_blocks.0", _stage(config, 2 * width)),
        **convolution("up_blocks.0.2", width, width, 3),
        **convolution("final_block.block.0", width, width, 3),
        **norm("final_block.block.2", width),
        **convolution("final_proj", flow.mel_bins, width, 1),
    }


def _stage(config: EstimatorConfig, in_channels: int) -> Schema:
    """A residual convolution block ``0`` and the transformer blocks ``1.*``."""
    width = config.channels
    schema = {
        **linear("0.mlp.1", width, config.time_width),
        **convolution("0.block1.block.0", width, in_channels, 3),
        **norm("0.block1.block.2", width),
        **convolution("0.block2.block.0", width, width, 3),
        **norm("0.block2.block.2", width),
        **convolution("0.res_conv", width, in_channels, 1),
    }
    for block in range(config.blocks_per_stage):
        schema |= prefixed(f"1.{block}", _transformer_block(config))
    return schema


def _transformer_block(config: EstimatorConfig) -> Schema:
    width, inner = config.channels, config.num_heads * config.head_dim
    return {
        **norm("norm1", width),
        "attn1.to_q.weight": (inner, width),
        "attn1.to_k.weight": (inner, width),
        "attn1.to_v.weight": (inner, width),
        **linear("attn1.to_out.0", width, inner),
        **norm("norm3", width),
        **linear("ff.net.0.proj", 4 * width, width),
        **linear("ff.net.2", width, 4 * width),
    }


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


_FLOW_PARTS: dict[type, Callable[[Any, FlowConfig], Schema]] = {
    EncoderConfig: _encoder,
    EstimatorConfig: _estimator,
    LookAheadConfig: look_ahead_schema,
    DiTConfig: dit_schema,
    RegulatedEncoderConfig: regulated_encoder_schema,
    ResamplingEstimatorConfig: resampling_estimator_schema,
}
_SPEECH_LMS: dict[type, Callable[[Any], Schema]] = {
    SpeechLMConfig: _qwen2_speech_lm,
    OneTableSpeechLMConfig: _qwen2_speech_lm,
    TransformerLMConfig: transformer_lm_schema,
}
