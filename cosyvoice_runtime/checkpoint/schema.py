"""Names and shapes of a checkpoint's tensors, in the published naming, derived from the architecture."""

from __future__ import annotations

from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.layout import Part
from cosyvoice_runtime.checkpoint.schema_vocoder import vocoder_schema
from cosyvoice_runtime.checkpoint.shapes import Schema, linear, prefixed
from cosyvoice_runtime.families import flow_parts, load, speech_lm_parts


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
