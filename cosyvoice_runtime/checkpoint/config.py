"""Architecture of a checkpoint: every size that its weights and its numbers depend on."""

from __future__ import annotations

from dataclasses import dataclass

from cosyvoice_runtime.checkpoint.config_flow import FlowConfig, RegulatedFlowConfig
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.errors import CheckpointError


@dataclass(frozen=True)
class VocoderConfig:
    """HiFT: mel in, waveform out."""

    mel_bins: int
    base_channels: int
    num_harmonics: int
    """Overtones above the fundamental."""
    sample_rate: int
    sine_amplitude: float
    noise_std: float
    voiced_threshold_hz: float
    upsample_rates: tuple[int, ...]
    upsample_kernels: tuple[int, ...]
    istft_size: int
    istft_hop: int
    resblock_kernels: tuple[int, ...]
    resblock_dilations: tuple[tuple[int, ...], ...]
    source_kernels: tuple[int, ...]
    source_dilations: tuple[tuple[int, ...], ...]
    leaky_slope: float
    audio_limit: float
    f0_channels: int

    @property
    def hop(self) -> int:
        """Samples per mel frame."""
        product = self.istft_hop
        for rate in self.upsample_rates:
            product *= rate
        return product

    @property
    def first_kernel(self) -> int:
        """Kernel of the decoder's first convolution."""
        return 7

    @property
    def first_f0_kernel(self) -> int:
        """Kernel of the F0 predictor's first convolution."""
        return 3

    @property
    def f0_lookaheads(self) -> tuple[int, ...]:
        """Frames that each of the F0 predictor's convolutions looks ahead."""
        return (1, 1, 1, 1, 1)

    @property
    def transposed_upsampling(self) -> bool:
        """Whether stages begin with transposed convolutions."""
        return True

    def upsampling_shape(self, stage: int) -> tuple[int, int, int]:
        """Shape of the weight of a transposed convolution: ``[in, out, kernel]``."""
        channels = self.base_channels >> stage
        return channels, channels // 2, self.upsample_kernels[stage]


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
        """Shape of the weight of an ordinary convolution: ``[out, in, kernel]``."""
        channels = self.base_channels >> stage
        return channels // 2, channels, self.upsample_kernels[stage]


@dataclass(frozen=True)
class SampledPhaseVocoderConfig(VocoderConfig):
    """HiFT whose phase is summed over samples, from a random start."""


@dataclass(frozen=True)
class ModelConfig:
    """The three networks whose weights this library runs itself."""

    speech_lm: SpeechLMConfig
    flow: FlowConfig
    vocoder: VocoderConfig

    @property
    def regulated_flow(self) -> RegulatedFlowConfig:
        """The flow of CosyVoice-300M; a CheckpointError for another family's."""
        if not isinstance(self.flow, RegulatedFlowConfig):
            raise CheckpointError(f"{type(self.flow).__name__} is another family's")
        return self.flow
