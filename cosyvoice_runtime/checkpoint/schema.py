"""Names and shapes of a checkpoint's tensors, in the published naming, derived from the architecture."""

from __future__ import annotations

from itertools import accumulate
from operator import mul

from cosyvoice_runtime.checkpoint.config import ModelConfig, VocoderConfig
from cosyvoice_runtime.checkpoint.config_flow import EncoderConfig, FlowConfig
from cosyvoice_runtime.checkpoint.config_lm import RelativeEncoderConfig, SpeechLMConfig, TransformerLMConfig
from cosyvoice_runtime.checkpoint.layout import Part
from cosyvoice_runtime.families import flow_parts, load, speech_lm_parts

Shape = tuple[int, ...]
Schema = dict[str, Shape]


def linear(name: str, out_features: int, in_features: int, bias: bool = True) -> Schema:
    weight: Schema = {f"{name}.weight": (out_features, in_features)}
    return weight | {f"{name}.bias": (out_features,)} if bias else weight


def convolution(name: str, out_channels: int, in_channels: int, kernel: int) -> Schema:
    return {f"{name}.weight": (out_channels, in_channels, kernel), f"{name}.bias": (out_channels,)}


def norm(name: str, width: int) -> Schema:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def prefixed(prefix: str, schema: Schema) -> Schema:
    return {f"{prefix}.{name}": shape for name, shape in schema.items()}


ENCODER_NORMS, DECODER_NORMS = ("norm_mha", "norm_ff"), ("norm1", "norm2")
"""Names of the norms before attention and feed-forward."""


def qwen2_lm_schema(config: SpeechLMConfig) -> Schema:
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
        schema |= prefixed(f"encoders.{layer}", relative_layer(config, norms))
    return schema


def relative_layer(config: RelativeEncoderConfig | EncoderConfig, norms: tuple[str, str]) -> Schema:
    """One layer; ``norms`` are the names of its norms in the order of the file."""
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


def part_schema(part: Part, config: ModelConfig) -> Schema:
    """Names and shapes of ``<part>.pt``."""
    if part == "llm":
        return llm_schema(config.speech_lm)
    if part == "flow":
        return flow_schema(config.flow)
    return vocoder_schema(config.vocoder)


def llm_schema(config: SpeechLMConfig) -> Schema:
    """``llm.pt``."""
    schema: Schema = load(speech_lm_parts(config).tensors)(config)
    return schema


def flow_schema(config: FlowConfig) -> Schema:
    """``flow.pt``: token table, speaker projection, what comes before the estimator, and the estimator."""
    parts = flow_parts(config.estimator)
    return {
        "input_embedding.weight": (config.token_vocab_size, config.token_width),
        **linear("spk_embed_affine_layer", config.mel_bins, config.speaker_dim),
        **load(parts.encoder_tensors)(config.encoder, config),
        **prefixed("decoder.estimator", load(parts.estimator_tensors)(config.estimator, config)),
    }
