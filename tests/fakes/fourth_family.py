"""A family that is CosyVoice2 but for its name, its files and its vocoder, described as a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor

from cosyvoice_runtime.checkpoint import ModelConfig, sections_cosyvoice2
from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.families import COSYVOICE2
from cosyvoice_runtime.families.family import VocoderParts
from cosyvoice_runtime.vocoder.torch import hift

LOUDER = 1.5


@dataclass(frozen=True)
class LouderVocoderConfig(VocoderConfig):
    """A vocoder whose source is louder."""


def read_config(tree: Mapping[str, Any], qwen2: Mapping[str, Any]) -> ModelConfig:
    """Sizes of CosyVoice2 with the other vocoder."""
    config = sections_cosyvoice2.read_config(tree, qwen2)
    return replace(config, vocoder=LouderVocoderConfig(**asdict(config.vocoder)))


class LouderSource(hift.HarmonicSource):
    """A source that is louder than HiFT's."""

    def merge(self, sines: Tensor, f0: Tensor, noise: Tensor | None) -> Tensor:
        return LOUDER * super().merge(sines, f0, noise)


def networks(config: VocoderConfig) -> tuple[hift.F0Predictor, hift.HarmonicSource, hift.Decoder]:
    """HiFT's networks with the louder source."""
    predictor, _, decoder = hift.networks(config)
    return predictor, LouderSource(config), decoder


STAND_IN = replace(
    COSYVOICE2,
    name="cosyvoice_stand_in",
    config_file="cosyvoice_stand_in.yaml",
    speech_tokenizer="speech_tokenizer_stand_in.onnx",
    read_config="fourth_family:read_config",
    vocoder=VocoderParts(
        config="fourth_family:LouderVocoderConfig",
        networks="fourth_family:networks",
        context="cosyvoice_runtime.vocoder.geometry:centred_context",
    ),
    backends=("torch",),
)
