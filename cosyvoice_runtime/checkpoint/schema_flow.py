"""Names and shapes of the tensors of ``flow.pt``: what comes before the estimator, and the estimator."""

from __future__ import annotations

from cosyvoice_runtime.checkpoint.config_flow import (
    DiTConfig,
    EncoderConfig,
    EstimatorConfig,
    FlowConfig,
    LevelConfig,
    LookAheadConfig,
    RegulatedEncoderConfig,
    ResamplingEstimatorConfig,
)
from cosyvoice_runtime.checkpoint.schema import (
    ENCODER_NORMS,
    Schema,
    convolution,
    linear,
    norm,
    prefixed,
    relative_layer,
    relative_stack,
)

CONFORMER_NORMS = ("norm_ff", "norm_mha")
TIME_SINUSOID = 256
POSITION_KERNEL, POSITION_GROUPS = 31, 16
"""Sizes of the two convolutions that tell the estimator about positions."""
REGULATOR_LAYERS = 4
"""Convolutions of the length regulator before its last, at every third place (norm, activation between)."""


def encoder_schema(config: EncoderConfig, flow: FlowConfig) -> Schema:
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
        schema |= prefixed(f"encoders.{layer}", relative_layer(config, CONFORMER_NORMS))
    for layer in range(config.num_up_layers):
        schema |= prefixed(f"up_encoders.{layer}", relative_layer(config, CONFORMER_NORMS))
    return schema


def estimator_schema(config: EstimatorConfig, flow: FlowConfig) -> Schema:
    width = config.channels
    level = LevelConfig(width, config.num_heads, config.head_dim)
    schema = {
        **linear("time_mlp.linear_1", config.time_width, config.in_channels),
        **linear("time_mlp.linear_2", config.time_width, config.time_width),
        **prefixed("down_blocks.0", _level(config, level, config.in_channels, 2)),
        **convolution("down_blocks.0.2", width, width, 3),
    }
    if config.meanflow:
        schema |= linear("time_embed_mixer", config.time_width, 2 * config.time_width, bias=False)
    for stage in range(config.num_mid_stages):
        schema |= prefixed(f"mid_blocks.{stage}", _level(config, level, width, 2))
    return schema | {
        **prefixed("up_blocks.0", _level(config, level, 2 * width, 2)),
        **convolution("up_blocks.0.2", width, width, 3),
        **prefixed("final_block", _block(width, width, 2)),
        **convolution("final_proj", flow.mel_bins, width, 1),
    }


def look_ahead_schema(config: LookAheadConfig, flow: FlowConfig) -> Schema:
    """Tensors before the estimator."""
    width, channels = flow.token_width, config.channels
    return {
        **convolution("pre_lookahead_layer.conv1", channels, width, flow.lookahead_tokens + 1),
        **convolution("pre_lookahead_layer.conv2", width, channels, 3),
    }


def dit_schema(config: DiTConfig, flow: FlowConfig) -> Schema:
    """The estimator."""
    width = config.width
    schema = {
        **linear("time_embed.time_mlp.0", width, TIME_SINUSOID),
        **linear("time_embed.time_mlp.2", width, width),
        **linear("input_embed.proj", width, 4 * flow.mel_bins),
    }
    for place in (1, 2):
        name = f"input_embed.conv_pos_embed.conv{place}.0"
        schema |= convolution(name, width, width // POSITION_GROUPS, POSITION_KERNEL)
    schema["rotary_embed.inv_freq"] = (config.head_dim // 2,)
    for block in range(config.depth):
        schema |= prefixed(f"transformer_blocks.{block}", _dit_block(config))
    return schema | {
        **linear("norm_out.linear", 2 * width, width),
        **linear("proj_out", flow.mel_bins, width),
    }


def _dit_block(config: DiTConfig) -> Schema:
    width, inner = config.width, config.inner_width
    return {
        **linear("attn_norm.linear", 6 * width, width),
        **linear("attn.to_q", inner, width),
        **linear("attn.to_k", inner, width),
        **linear("attn.to_v", inner, width),
        **linear("attn.to_out.0", width, inner),
        **linear("ff.ff.0.0", config.feed_forward_factor * width, width),
        **linear("ff.ff.2", width, config.feed_forward_factor * width),
    }


def regulated_encoder_schema(config: RegulatedEncoderConfig, flow: FlowConfig) -> Schema:
    """Tensors before the estimator: encoder, projection and length regulator."""
    bins = flow.mel_bins
    schema = {
        **prefixed("encoder", relative_stack(config, ENCODER_NORMS)),
        **linear("encoder_proj", bins, config.width),
    }
    for layer in range(REGULATOR_LAYERS):
        schema |= convolution(f"length_regulator.model.{3 * layer}", bins, bins, 3)
        schema |= norm(f"length_regulator.model.{3 * layer + 1}", bins)
    return schema | convolution(f"length_regulator.model.{3 * REGULATOR_LAYERS}", bins, bins, 1)


def resampling_estimator_schema(config: ResamplingEstimatorConfig, flow: FlowConfig) -> Schema:
    """The estimator. The last convolution of a level resamples, but for that of the last one."""
    schema = {
        **linear("time_mlp.linear_1", config.time_width, config.in_channels),
        **linear("time_mlp.linear_2", config.time_width, config.time_width),
    }
    last = len(config.channels) - 1
    for stage, (inputs, outputs) in enumerate(config.down_stages):
        schema |= prefixed(f"down_blocks.{stage}", _level(config, config.level(outputs), inputs, 1))
        name = f"down_blocks.{stage}.2" + ("" if stage == last else ".conv")
        schema |= convolution(name, outputs, outputs, 3)
    for stage in range(config.num_mid_stages):
        width = config.channels[-1]
        schema |= prefixed(f"mid_blocks.{stage}", _level(config, config.level(width), width, 1))
    for stage, (inputs, outputs) in enumerate(config.up_stages):
        schema |= prefixed(f"up_blocks.{stage}", _level(config, config.level(outputs), inputs, 1))
        if stage == last:
            schema |= convolution(f"up_blocks.{stage}.2", outputs, outputs, 3)
        else:
            schema |= convolution(f"up_blocks.{stage}.2.conv", outputs, outputs, 4)
    width = config.channels[0]
    return schema | {
        **prefixed("final_block", _block(width, width, 1)),
        **convolution("final_proj", flow.mel_bins, width, 1),
    }


def _level(
    config: EstimatorConfig | ResamplingEstimatorConfig, level: LevelConfig, inputs: int, norm_place: int
) -> Schema:
    """A residual convolution block ``0`` and the transformer blocks ``1.*``."""
    outputs = level.channels
    schema = {
        **linear("0.mlp.1", outputs, config.time_width),
        **prefixed("0.block1", _block(inputs, outputs, norm_place)),
        **prefixed("0.block2", _block(outputs, outputs, norm_place)),
        **convolution("0.res_conv", outputs, inputs, 1),
    }
    for block in range(config.blocks_per_stage):
        schema |= prefixed(f"1.{block}", transformer_block(level))
    return schema


def _block(inputs: int, outputs: int, norm_place: int) -> Schema:
    return {**convolution("block.0", outputs, inputs, 3), **norm(f"block.{norm_place}", outputs)}


def transformer_block(config: LevelConfig) -> Schema:
    """Self-attention and a feed-forward of four times the channels."""
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
