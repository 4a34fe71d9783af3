"""Names and shapes of the tensors of ``llm.pt``."""

from __future__ import annotations

from cosyvoice_runtime.checkpoint.config_lm import RelativeEncoderConfig, SpeechLMConfig, TransformerLMConfig
from cosyvoice_runtime.checkpoint.shapes import Schema, linear, norm, prefixed

ENCODER_NORMS, DECODER_NORMS = ("norm_mha", "norm_ff"), ("norm1", "norm2")
"""What the norms before attention and feed-forward are called."""


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
