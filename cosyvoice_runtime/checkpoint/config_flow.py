"""Sizes of the flows that read the published weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from cosyvoice_runtime.checkpoint.config_lm import RelativeEncoderConfig
from cosyvoice_runtime.errors import CheckpointError

_P = TypeVar("_P")


def guidance_rows(rate: float) -> int:
    """Rows of the estimator for one utterance: with its conditions and, if guidance has a rate, without."""
    return 2 if rate else 1


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
    meanflow: bool = False
    """Whether the network is told where a step ends, too, and gives the mean velocity up to there."""

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
        """Width of all heads together."""
        return self.num_heads * self.head_dim


@dataclass(frozen=True)
class RegulatedEncoderConfig(RelativeEncoderConfig):
    """Encoder that sees all tokens at once; its output is stretched to mel frames."""

    chunk_tokens: int
    """Tokens by which a stream goes on."""


@dataclass(frozen=True)
class LevelConfig:
    """Transformer blocks of one level of the estimator."""

    channels: int
    num_heads: int
    head_dim: int


@dataclass(frozen=True)
class ResamplingEstimatorConfig:
    """U-Net that halves the frames between its levels and predicts the flow's velocity."""

    in_channels: int
    channels: tuple[int, ...]
    """Channels of each level, the outermost first."""
    num_heads: int
    head_dim: int
    blocks_per_stage: int
    num_mid_stages: int

    @property
    def time_width(self) -> int:
        """Width of the time embedding (four times the channels)."""
        return 4 * self.channels[0]

    @property
    def down_stages(self) -> tuple[tuple[int, int], ...]:
        """Channels in and out of each stage on the way in."""
        return tuple(zip((self.in_channels, *self.channels), self.channels, strict=False))

    @property
    def up_stages(self) -> tuple[tuple[int, int], ...]:
        """Channels in, those kept on the way in among them, and out of each stage on the way out."""
        inner = self.channels[::-1]
        return tuple((2 * kept, out) for kept, out in zip(inner, (*inner[1:], inner[-1]), strict=True))

    def level(self, channels: int) -> LevelConfig:
        """Sizes of a level's transformer blocks."""
        return LevelConfig(channels, self.num_heads, self.head_dim)


def _require(part: object, kind: type[_P]) -> _P:
    if not isinstance(part, kind):
        raise CheckpointError(f"{kind.__name__} is needed; the flow has {type(part).__name__}")
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
    """Classifier-free guidance: velocity = (1 + rate) * conditioned - rate * unconditioned; 0 is none."""
    encoder: EncoderConfig | LookAheadConfig | RegulatedEncoderConfig
    """The network before the estimator."""
    estimator: EstimatorConfig | DiTConfig | ResamplingEstimatorConfig
    times: tuple[float, ...] = field(default=(), kw_only=True)
    """Times of a distilled flow's steps in [0, 1), ascending from 0; empty: its solver has its own."""

    @property
    def guidance_rows(self) -> int:
        """Rows of the estimator for one utterance."""
        return guidance_rows(self.cfg_rate)

    @property
    def meanflow(self) -> bool:
        """Whether the estimator gives the mean velocity of a step."""
        return isinstance(self.estimator, EstimatorConfig) and self.estimator.meanflow

    @property
    def conformer(self) -> EncoderConfig:
        """The encoder of CosyVoice2; a CheckpointError for another family's."""
        return _require(self.encoder, EncoderConfig)

    @property
    def unet(self) -> EstimatorConfig:
        """The estimator of CosyVoice2; a CheckpointError for another family's."""
        return _require(self.estimator, EstimatorConfig)

    @property
    def transformer(self) -> DiTConfig:
        """The estimator of CosyVoice3; a CheckpointError for another family's."""
        return _require(self.estimator, DiTConfig)

    @property
    def fixed_chunks(self) -> bool:
        """Whether an utterance sounds different with other chunks."""
        return False

    @property
    def blockwise(self) -> EstimatorConfig | DiTConfig:
        """The estimator that computes its blocks one after another; a CheckpointError for any other."""
        if isinstance(self.estimator, ResamplingEstimatorConfig):
            raise CheckpointError(f"{type(self.estimator).__name__} has no blocks")
        return self.estimator

    def frames(self, tokens: int) -> int:
        """Mel frames of so many tokens."""
        return self.frames_per_token * tokens


@dataclass(frozen=True)
class RegulatedFlowConfig(FlowConfig):
    """Speech tokens and a voice in, mel out, where no whole number of frames belongs to a token.

    ``frames_per_token`` is that number rounded down; how many frames tokens have, :meth:`frames` knows.
    ``lookahead_tokens`` are those that a stream speaks again in its next chunk.
    """

    sample_rate: int
    mel_hop: int

    @property
    def fixed_chunks(self) -> bool:
        return True

    @property
    def whole_encoder(self) -> RegulatedEncoderConfig:
        """The encoder, of its own class; a CheckpointError for another family's."""
        return _require(self.encoder, RegulatedEncoderConfig)

    @property
    def resampling_unet(self) -> ResamplingEstimatorConfig:
        """The estimator, of its own class; a CheckpointError for another family's."""
        return _require(self.estimator, ResamplingEstimatorConfig)

    def frames(self, tokens: int) -> int:
        return int(tokens / self.token_rate * self.sample_rate / self.mel_hop)
