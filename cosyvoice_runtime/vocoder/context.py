"""How far a vocoder looks around each frame."""

from __future__ import annotations

from functools import cache

from cosyvoice_runtime.checkpoint.config_vocoder import VocoderConfig
from cosyvoice_runtime.families import load, vocoder_parts
from cosyvoice_runtime.vocoder.geometry import VocoderContext


@cache
def context(config: VocoderConfig) -> VocoderContext:
    """Frames that the vocoder's networks read around a frame."""
    found: VocoderContext = load(vocoder_parts(config).context)(config)
    return found
