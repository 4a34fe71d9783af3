"""What CosyVoice3's architecture has in place of CosyVoice2's.

Constants that no configuration has are those of the published code (FunAudioLLM/CosyVoice ``ace7c47``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cosyvoice_runtime.checkpoint.config import FlowConfig, ModelConfig, SpeechLMConfig, VocoderConfig
from cosyvoice_runtime.checkpoint.published_sizes import (
    Section,
    flow_sizes,
    require,
    speech_lm_sizes,
    vocoder_sizes,
)
from cosyvoice_runtime.errors import CheckpointError

CONTROL_ROWS = 200
"""Rows after the codes. The first four are sos, eos, the task id and the fill marker; the others are unused,
and end the speech as well."""


@dataclass(frozen=True)
class OneTableSpeechLMConfig(SpeechLMConfig):
    """All speech and control ids are rows of one table; the head has as many rows, and no bias."""

    @property
    def speech_rows(self) -> int:
        return self.speech_tokens + CONTROL_ROWS

    @property
    def eos_id(self) -> int:
        return self.speech_tokens + 1

    @property
    def fill_id(self) -> int:
        return self.speech_tokens + 3

    @property
    def control_rows(self) -> tuple[int, int]:
        return self.speech_tokens, self.speech_tokens + 2

    @property
    def head_bias(self) -> bool:
        return False


@dataclass(frozen=True)
class LookAheadConfig:
    """Two convolutions that mix the next tokens into each token's embedding; there is no encoder."""

    channels: int
    chunk_tokens: int
    """Tokens of one block of the estimator."""


@dataclass(frozen=True)
class DiTConfig:
    """Diffusion transformer that predicts the flow's velocity."""

    width: int
    depth: int
    num_heads: int
    head_dim: int
    feed_forward_factor: int
    chunk_frames: int

    @property
    def attentions(self) -> int:
        """Layers of attention."""
        return self.depth

    @property
    def inner_width(self) -> int:
        """Of all heads together."""
        return self.num_heads * self.head_dim


@dataclass(frozen=True)
class CausalVocoderConfig(VocoderConfig):
    """HiFT whose convolutions look back only, but for the first of the decoder and of the F0 predictor."""

    lookahead_frames: int
    """Mel frames that the decoder's first convolution looks ahead."""

    @property
    def first_kernel(self) -> int:
        return self.lookahead_frames + 1

    @property
    def first_f0_kernel(self) -> int:
        return 4

    @property
    def f0_lookaheads(self) -> tuple[int, ...]:
        return (self.first_f0_kernel - 1, 0, 0, 0, 0)

    @property
    def transposed_upsampling(self) -> bool:
        return False

    def upsampling_shape(self, stage: int) -> tuple[int, int, int]:
        """Of the weight of an ordinary convolution: ``[out, in, kernel]``."""
        channels = self.base_channels >> stage
        return channels // 2, channels, self.upsample_kernels[stage]


def config_from_sections(sections: Mapping[str, Section]) -> ModelConfig:
    """Build from upstream's constructor arguments.

    Args:
        sections: ``llm``, ``qwen2``, ``flow``, ``pre_lookahead``, ``cfm``, ``estimator``, ``hift`` and
            ``f0``, each with the argument names of the published configuration.

    Raises:
        CheckpointError: a section or key is missing, or a value asks for something that no published
            CosyVoice3 checkpoint has.
    """
    try:
        return ModelConfig(
            speech_lm=OneTableSpeechLMConfig(**speech_lm_sizes(sections["llm"], sections["qwen2"])),
            flow=_flow(sections),
            vocoder=CausalVocoderConfig(
                **vocoder_sizes(sections["hift"], sections["f0"]),
                lookahead_frames=sections["hift"]["conv_pre_look_right"],
            ),
        )
    except KeyError as error:
        raise CheckpointError(f"configuration lacks the key {error}") from error


def _flow(sections: Mapping[str, Section]) -> FlowConfig:
    flow, cfm, estimator = (sections[name] for name in ("flow", "cfm", "estimator"))
    sizes = flow_sizes(flow, cfm)
    mel, rate, frames = sizes["mel_bins"], sizes["frames_per_token"], estimator["static_chunk_size"]
    for name in ("mel_dim", "mu_dim", "spk_dim", "out_channels"):
        require(f"estimator.{name}", estimator[name] == mel, estimator[name], f"{mel}, the mel's size,")
    require("flow.input_size", sizes["token_width"] == mel, sizes["token_width"], f"{mel}, the mel's size,")
    require("estimator.static_chunk_size", frames % rate == 0, frames, f"a multiple of {rate}")
    return FlowConfig(
        **sizes,
        encoder=LookAheadConfig(sections["pre_lookahead"]["channels"], chunk_tokens=frames // rate),
        estimator=DiTConfig(
            width=estimator["dim"],
            depth=estimator["depth"],
            num_heads=estimator["heads"],
            head_dim=estimator["dim_head"],
            feed_forward_factor=estimator["ff_mult"],
            chunk_frames=frames,
        ),
    )
