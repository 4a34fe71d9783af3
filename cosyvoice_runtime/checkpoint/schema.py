"""Names and shapes of a checkpoint's tensors, in the published naming, derived from the architecture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cosyvoice_runtime.checkpoint import schema_flow, schema_lm
from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.config_flow import (
    DiTConfig,
    EncoderConfig,
    EstimatorConfig,
    FlowConfig,
    LookAheadConfig,
    RegulatedEncoderConfig,
    ResamplingEstimatorConfig,
)
from cosyvoice_runtime.checkpoint.config_lm import OneTableSpeechLMConfig, SpeechLMConfig, TransformerLMConfig
from cosyvoice_runtime.checkpoint.layout import Part
from cosyvoice_runtime.checkpoint.schema_vocoder import vocoder_schema
from cosyvoice_runtime.checkpoint.shapes import Schema, linear, prefixed


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


def flow_schema(config: FlowConfig) -> Schema:
    """``flow.pt``: token table, speaker projection, what comes before the estimator, and the estimator."""
    return {
        "input_embedding.weight": (config.token_vocab_size, config.token_width),
        **linear("spk_embed_affine_layer", config.mel_bins, config.speaker_dim),
        **_FLOW_PARTS[type(config.encoder)](config.encoder, config),
        **prefixed("decoder.estimator", _FLOW_PARTS[type(config.estimator)](config.estimator, config)),
    }


_FLOW_PARTS: dict[type, Callable[[Any, FlowConfig], Schema]] = {
    EncoderConfig: schema_flow.encoder_schema,
    EstimatorConfig: schema_flow.estimator_schema,
    LookAheadConfig: schema_flow.look_ahead_schema,
    DiTConfig: schema_flow.dit_schema,
    RegulatedEncoderConfig: schema_flow.regulated_encoder_schema,
    ResamplingEstimatorConfig: schema_flow.resampling_estimator_schema,
}
_SPEECH_LMS: dict[type, Callable[[Any], Schema]] = {
    SpeechLMConfig: schema_lm.qwen2_lm_schema,
    OneTableSpeechLMConfig: schema_lm.qwen2_lm_schema,
    TransformerLMConfig: schema_lm.transformer_lm_schema,
}
