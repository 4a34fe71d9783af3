"""Architecture of a checkpoint: every size that its weights and its numbers depend on."""

from __future__ import annotations

from dataclasses import dataclass

from cosyvoice_runtime.checkpoint.config_flow import FlowConfig, RegulatedFlowConfig
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.config_vocoder import VocoderConfig
from cosyvoice_runtime.errors import CheckpointError


@dataclass(frozen=True)
class ModelConfig:
    """The three networks whose weights this library runs itself."""

    speech_lm: SpeechLMConfig
    flow: FlowConfig
    vocoder: VocoderConfig

    @property
    def regulated_flow(self) -> RegulatedFlowConfig:
        """The flow, for what only CosyVoice-300M has.

        Raises:
            CheckpointError: it is another family's.
        """
        if not isinstance(self.flow, RegulatedFlowConfig):
            raise CheckpointError(f"{type(self.flow).__name__} is another family's")
        return self.flow
