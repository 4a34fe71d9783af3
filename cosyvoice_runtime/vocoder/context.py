"""How far a vocoder looks around each frame."""

from __future__ import annotations

from functools import cache

from cosyvoice_runtime.checkpoint.config_vocoder import CausalVocoderConfig, VocoderConfig
from cosyvoice_runtime.vocoder.causal_geometry import causal_context
from cosyvoice_runtime.vocoder.geometry import VocoderContext, centred_context


@cache
def context(config: VocoderConfig) -> VocoderContext:
    """Frames around a frame that the family's networks read."""
    if isinstance(config, CausalVocoderConfig):
        return causal_context(config)
    return centred_context(config)
