"""Names and shapes of the tensors that CosyVoice-300M has in place of CosyVoice2's."""

from __future__ import annotations

from cosyvoice_runtime.checkpoint.config import FlowConfig
from cosyvoice_runtime.checkpoint.config_cosyvoice300m import (
    LevelConfig,
    RegulatedEncoderConfig,
    RelativeEncoderConfig,
    ResamplingEstimatorConfig,
    TransformerLMConfig,
)
from cosyvoice_runtime.checkpoint.shapes import Schema, convolution, linear, norm, prefixed

REGULATOR_LAYERS = 4
"""Convolutions of the length regulator before its last, at every third place (norm, activation between)."""
ENCODER_NORMS, DECODER_NORMS = ("norm_mha", "norm_ff"), ("norm1", "norm2")
"""What the norms before attention and feed-forward are called."""


def transformer_lm_schema(config: TransformerLMConfig) -> Schema:
    """``llm.pt``: text encoder, decoder, tables and head."""
    text, width = config.text_encoder, config.hidden_size
    return {
        "text_embedding.weight": (config.text_vocab_size, config.text_width),
        **prefixed("text_encoder", relative_stack(text, ENCODER_NORMS)),
        **linear("text_encoder_affine_layer", config.input_width, text.width),
        "llm_embedding.weight": (2, config.input_width),
        **prefixed("llm", relative_stack(config.decoder, DECODER_NORMS)),
        **linear("llm_decoder", config.speech_rows, width),
        "speech_embedding.weight": (config.speech_tokens, config.input_width),
        **linear("spk_embed_affine_layer", config.input_width, config.speaker_dim),
    }


def relative_stack(config: RelativeEncoderConfig, norms: tuple[str, str]) -> Schema:
    """Layers of attention with relative positions, their input layer and last norm."""
    width = config.width
    schema = {
        **linear("embed.out.0", width, config.width_in),
        **norm("embed.out.1", width),
        **norm("after_norm", width),
    }
    for layer in range(config.num_layers):
        schema |= prefixed(f"encoders.{layer}", _relative_layer(config, norms))
    return schema


def _relative_layer(config: RelativeEncoderConfig, norms: tuple[str, str]) -> Schema:
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
        **norm(norms[0], width),
        **norm(norms[1], width),
    }


def regulated_encoder_schema(config: RegulatedEncoderConfig, flow: FlowConfig) -> Schema:
    """What comes before the estimator: encoder, projection and length regulator."""
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
        schema |= prefixed(f"down_blocks.{stage}", _stage(config, inputs, outputs))
        name = f"down_blocks.{stage}.2" + ("" if stage == last else ".conv")
        schema |= convolution(name, outputs, outputs, 3)
    for stage in range(config.num_mid_stages):
        width = config.channels[-1]
        schema |= prefixed(f"mid_blocks.{stage}", _stage(config, width, width))
    for stage, (inputs, outputs) in enumerate(config.up_stages):
        schema |= prefixed(f"up_blocks.{stage}", _stage(config, inputs, outputs))
        if stage == last:
            schema |= convolution(f"up_blocks.{stage}.2", outputs, outputs, 3)
        else:
            schema |= convolution(f"up_blocks.{stage}.2.conv", outputs, outputs, 4)
    width = config.channels[0]
    return schema | {
        **prefixed("final_block", _block(width, width)),
        **convolution("final_proj", flow.mel_bins, width, 1),
    }


def _stage(config: ResamplingEstimatorConfig, inputs: int, outputs: int) -> Schema:
    """A residual convolution block ``0`` and the transformer blocks ``1.*``."""
    schema = {
        **linear("0.mlp.1", outputs, config.time_width),
        **prefixed("0.block1", _block(inputs, outputs)),
        **prefixed("0.block2", _block(outputs, outputs)),
        **convolution("0.res_conv", outputs, inputs, 1),
    }
    for block in range(config.blocks_per_stage):
        schema |= prefixed(f"1.{block}", transformer_block(config.level(outputs)))
    return schema


def _block(inputs: int, outputs: int) -> Schema:
    return {**convolution("block.0", outputs, inputs, 3), **norm("block.1", outputs)}


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
