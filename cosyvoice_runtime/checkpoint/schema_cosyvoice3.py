"""Names and shapes of what CosyVoice3's flow has in place of CosyVoice2's."""

from __future__ import annotations

from cosyvoice_runtime.checkpoint.config import FlowConfig
from cosyvoice_runtime.checkpoint.config_cosyvoice3 import DiTConfig, LookAheadConfig
from cosyvoice_runtime.checkpoint.shapes import Schema, convolution, linear, prefixed

TIME_SINUSOID = 256
POSITION_KERNEL, POSITION_GROUPS = 31, 16
"""Of the two convolutions that tell the estimator about positions."""


def look_ahead_schema(config: LookAheadConfig, flow: FlowConfig) -> Schema:
    """What comes before the estimator."""
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
        schema |= prefixed(f"transformer_blocks.{block}", _block(config))
    return schema | {
        **linear("norm_out.linear", 2 * width, width),
        **linear("proj_out", flow.mel_bins, width),
    }


def _block(config: DiTConfig) -> Schema:
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
