"""Architecture of a checkpoint: every size that its weights and its numbers depend on.

The published directory spreads these over ``cosyvoice2.yaml`` and the Qwen2 ``config.json``.
:meth:`ModelConfig.from_sections` takes them as plain sections of constructor arguments, whatever
file they came from. What another family has instead stands in a module of its own
(:mod:`~cosyvoice_runtime.checkpoint.config_cosyvoice3`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from cosyvoice_runtime.checkpoint.published_sizes import (
    Section,
    flow_sizes,
    require,
    speech_lm_sizes,
    vocoder_sizes,
)
from cosyvoice_runtime.errors import CheckpointError

if TYPE_CHECKING:
    from cosyvoice_runtime.checkpoint.config_cosyvoice3 import DiTConfig, LookAheadConfig
    from cosyvoice_runtime.checkpoint.config_cosyvoice300m import (
        RegulatedEncoderConfig,
        RegulatedFlowConfig,
        ResamplingEstimatorConfig,
    )

WHOLE_TEXTS = (0, 0)
"""``mix_ratio`` of a speech LM that was not trained on text between speech."""


@dataclass(frozen=True)
class SpeechLMConfig:
    """Qwen2 decoder that reads text and speech tokens and writes speech tokens."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    text_vocab_size: int
    speech_tokens: int
    rope_theta: float
    rms_norm_eps: float
    max_positions: int
    mix_ratio: tuple[int, int]
    """(text, speech) tokens per block when text streams in, or WHOLE_TEXTS."""

    @property
    def interleaves_text(self) -> bool:
        """Whether text may come between speech tokens."""
        return self.mix_ratio != WHOLE_TEXTS

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads

    @property
    def speech_rows(self) -> int:
        """Rows of the speech embedding and of the output head: the codes and three control ids."""
        return self.speech_tokens + 3

    @property
    def eos_id(self) -> int:
        return self.speech_tokens

    @property
    def fill_id(self) -> int:
        """Control id by which the model asks for more text when text streams in."""
        return self.speech_tokens + 2

    @property
    def stop_ids(self) -> range:
        """All rows after the codes; any of them ends the speech."""
        return range(self.speech_tokens, self.speech_rows)

    @property
    def control_rows(self) -> tuple[int, int] | None:
        """Speech rows of sos and of the task id; None where they have a table of their own."""
        return None

    @property
    def token_rate(self) -> int:
        """Speech tokens per second."""
        return 25

    @property
    def speaker_values(self) -> int:
        """Values of the speaker embedding that it reads; 0 where it reads none."""
        return 0

    @property
    def rotary(self) -> bool:
        """Whether positions turn queries and keys."""
        return True

    @property
    def head_bias(self) -> bool:
        """Whether the output head has a bias."""
        return True


@dataclass(frozen=True)
class EncoderConfig:
    """Conformer that turns speech tokens into mel-rate hidden states."""

    width: int
    num_heads: int
    feed_forward_width: int
    num_layers: int
    num_up_layers: int
    chunk_tokens: int
    """Tokens that see each other fully under the block-causal mask."""

    @property
    def head_dim(self) -> int:
        return self.width // self.num_heads


@dataclass(frozen=True)
class EstimatorConfig:
    """U-Net without resampling that predicts the flow's velocity."""

    in_channels: int
    channels: int
    num_heads: int
    head_dim: int
    blocks_per_stage: int
    num_mid_stages: int
    chunk_frames: int

    @property
    def num_stages(self) -> int:
        """One down stage, the mid stages, one up stage."""
        return self.num_mid_stages + 2

    @property
    def attentions(self) -> int:
        """Layers of attention."""
        return self.num_stages * self.blocks_per_stage

    @property
    def time_width(self) -> int:
        """Width of the time embedding (four times the channels)."""
        return 4 * self.channels


_P = TypeVar("_P", EncoderConfig, EstimatorConfig)


def _of_cosyvoice2(part: object, kind: type[_P]) -> _P:
    if not isinstance(part, kind):
        raise CheckpointError(
            f"{kind.__name__} is needed, as in CosyVoice2; the flow has {type(part).__name__}"
        )
    return part


@dataclass(frozen=True)
class FlowConfig:
    """Speech tokens and a voice in, mel out."""

    token_vocab_size: int
    token_width: int
    mel_bins: int
    speaker_dim: int
    lookahead_tokens: int
    frames_per_token: int
    token_rate: int
    cfg_rate: float
    """Classifier-free guidance: velocity = (1 + rate) * conditioned - rate * unconditioned."""
    encoder: EncoderConfig | LookAheadConfig | RegulatedEncoderConfig
    """What comes before the estimator."""
    estimator: EstimatorConfig | DiTConfig | ResamplingEstimatorConfig

    @property
    def conformer(self) -> EncoderConfig:
        """The encoder, for what only CosyVoice2 has.

        Raises:
            CheckpointError: the flow is of another family.
        """
        return _of_cosyvoice2(self.encoder, EncoderConfig)

    @property
    def unet(self) -> EstimatorConfig:
        """The estimator, for what only CosyVoice2 has.

        Raises:
            CheckpointError: the flow is of another family.
        """
        return _of_cosyvoice2(self.estimator, EstimatorConfig)

    @property
    def fixed_chunks(self) -> bool:
        """Whether an utterance sounds different with other chunks."""
        return False

    @property
    def blockwise(self) -> EstimatorConfig | DiTConfig:
        """The estimator, for what computes its blocks one after another.

        Raises:
            CheckpointError: it sees all frames at once.
        """
        # which builds upon this module
        from cosyvoice_runtime.checkpoint.config_cosyvoice300m import ResamplingEstimatorConfig

        if isinstance(self.estimator, ResamplingEstimatorConfig):
            raise CheckpointError(f"{type(self.estimator).__name__} has no blocks")
        return self.estimator

    def frames(self, tokens: int) -> int:
        """Mel frames of so many tokens."""
        return self.frames_per_token * tokens


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
        """Of the weight of a transposed convolution: ``[in, out, kernel]``."""
        channels = self.base_channels >> stage
        return channels, channels // 2, self.upsample_kernels[stage]


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
        # which builds upon this module
        from cosyvoice_runtime.checkpoint.config_cosyvoice300m import RegulatedFlowConfig

        if not isinstance(self.flow, RegulatedFlowConfig):
            raise CheckpointError(f"{type(self.flow).__name__} is another family's")
        return self.flow

    @classmethod
    def from_sections(cls, sections: Mapping[str, Section], num_up_layers: int = 4) -> ModelConfig:
        """Build from upstream's constructor arguments.

        Args:
            sections: ``llm``, ``qwen2``, ``flow``, ``encoder``, ``cfm``, ``estimator``, ``hift`` and
                ``f0``, each with the argument names of the published configuration.
            num_up_layers: layers after the up-sampling; the published code fixes it at 4.

        Raises:
            CheckpointError: a section or key is missing, or a value asks for something that no
                published CosyVoice2 checkpoint has.
        """
        try:
            return cls(
                speech_lm=SpeechLMConfig(**speech_lm_sizes(sections["llm"], sections["qwen2"])),
                flow=_flow(sections, num_up_layers),
                vocoder=VocoderConfig(**vocoder_sizes(sections["hift"], sections["f0"])),
            )
        except KeyError as error:
            raise CheckpointError(f"configuration lacks the key {error}") from error


def _flow(sections: Mapping[str, Section], num_up_layers: int) -> FlowConfig:
    flow, encoder, cfm, estimator = (sections[name] for name in ("flow", "encoder", "cfm", "estimator"))
    require("estimator.channels", len(estimator["channels"]) == 1, estimator["channels"], "one level")
    require("estimator.act_fn", estimator["act_fn"] == "gelu", estimator["act_fn"], "gelu")
    return FlowConfig(
        **flow_sizes(flow, cfm),
        encoder=EncoderConfig(
            width=encoder["output_size"],
            num_heads=encoder["attention_heads"],
            feed_forward_width=encoder["linear_units"],
            num_layers=encoder["num_blocks"],
            num_up_layers=num_up_layers,
            chunk_tokens=encoder["static_chunk_size"],
        ),
        estimator=EstimatorConfig(
            in_channels=estimator["in_channels"],
            channels=estimator["channels"][0],
            num_heads=estimator["num_heads"],
            head_dim=estimator["attention_head_dim"],
            blocks_per_stage=estimator["n_blocks"],
            num_mid_stages=estimator["num_mid_blocks"],
            chunk_frames=estimator["static_chunk_size"],
        ),
    )
