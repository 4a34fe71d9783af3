"""What the architecture of CosyVoice-300M, -SFT and -Instruct has in place of CosyVoice2's.

Constants that no configuration has are those of the published code (FunAudioLLM/CosyVoice ``ace7c47``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from cosyvoice_runtime.checkpoint.config import (
    WHOLE_TEXTS,
    FlowConfig,
    ModelConfig,
    SpeechLMConfig,
    VocoderConfig,
)
from cosyvoice_runtime.checkpoint.published_sizes import Section, require, vocoder_sizes
from cosyvoice_runtime.errors import CheckpointError

MOST_POSITIONS = 5000
"""Of the published table of relative positions."""
SINUSOID_BASE = 10_000.0
LAYER_NORM_EPS = 1e-12
TOKEN_RATE = 50
CHUNK_TOKENS, OVERLAP_TOKENS = 100, 20
"""Tokens by which a stream goes on, and those after them that its next chunk speaks again."""


@dataclass(frozen=True)
class RelativeEncoderConfig:
    """Layers of attention with relative positions."""

    width_in: int
    width: int
    num_heads: int
    feed_forward_width: int
    num_layers: int

    @property
    def head_dim(self) -> int:
        return self.width // self.num_heads


@dataclass(frozen=True)
class TransformerLMConfig(SpeechLMConfig):
    """Decoder with relative positions, which reads encoded text and who speaks.

    ``rope_theta`` is the base of the positions' sinusoids, ``rms_norm_eps`` that of the layers' norms.
    """

    input_width: int
    text_width: int
    speaker_dim: int
    text_encoder: RelativeEncoderConfig

    @property
    def decoder(self) -> RelativeEncoderConfig:
        """The decoder's layers, described as an encoder's."""
        return RelativeEncoderConfig(
            self.input_width, self.hidden_size, self.num_heads, self.intermediate_size, self.num_layers
        )

    @property
    def token_rate(self) -> int:
        return TOKEN_RATE

    @property
    def rotary(self) -> bool:
        return False

    @property
    def speaker_values(self) -> int:
        return self.speaker_dim

    @property
    def speech_rows(self) -> int:
        """Rows of the output head: the codes and the end of speech, which the embedding has no row for."""
        return self.speech_tokens + 1


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
    """Of each level, the outermost first."""
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


_P = TypeVar("_P", RegulatedEncoderConfig, ResamplingEstimatorConfig)


def _of_this_family(part: object, kind: type[_P]) -> _P:
    if not isinstance(part, kind):
        raise CheckpointError(f"{kind.__name__} is needed; the flow has {type(part).__name__}")
    return part


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
        """The encoder, of its own class.

        Raises:
            CheckpointError: it is another family's.
        """
        return _of_this_family(self.encoder, RegulatedEncoderConfig)

    @property
    def resampling_unet(self) -> ResamplingEstimatorConfig:
        """The estimator, of its own class.

        Raises:
            CheckpointError: it is another family's.
        """
        return _of_this_family(self.estimator, ResamplingEstimatorConfig)

    def frames(self, tokens: int) -> int:
        return int(tokens / self.token_rate * self.sample_rate / self.mel_hop)


@dataclass(frozen=True)
class SampledPhaseVocoderConfig(VocoderConfig):
    """HiFT whose phase is summed over samples, from a random start."""


def config_from_sections(sections: Mapping[str, Section]) -> ModelConfig:
    """Build from upstream's constructor arguments.

    Args:
        sections: ``llm``, ``text_encoder``, ``llm_transformer``, ``flow``, ``flow_encoder``,
            ``length_regulator``, ``cfm``, ``estimator``, ``hift`` and ``f0``, each with the argument names of
            the published configuration.

    Raises:
        CheckpointError: a section or key is missing, or a value asks for something that no published
            CosyVoice-300M checkpoint has.
    """
    try:
        vocoder = SampledPhaseVocoderConfig(**vocoder_sizes(sections["hift"], sections["f0"]))
        return ModelConfig(_speech_lm(sections), _flow(sections, vocoder), vocoder)
    except KeyError as error:
        raise CheckpointError(f"configuration lacks the key {error}") from error


def _speech_lm(sections: Mapping[str, Section]) -> TransformerLMConfig:
    llm, transformer = sections["llm"], sections["llm_transformer"]
    layer = transformer["input_layer"]
    require("llm.llm.input_layer", layer == "linear_legacy", layer, "linear_legacy")
    _require_same("llm.llm.input_size", transformer["input_size"], llm["llm_input_size"])
    _require_same("llm.llm.output_size", transformer["output_size"], llm["llm_output_size"])
    text_encoder = encoder_sizes("llm.text_encoder", sections["text_encoder"], causal=True)
    _require_same("llm.text_encoder.input_size", text_encoder["width_in"], llm["text_encoder_input_size"])
    heads = transformer["attention_heads"]
    return TransformerLMConfig(
        hidden_size=transformer["output_size"],
        intermediate_size=transformer["linear_units"],
        num_layers=transformer["num_blocks"],
        num_heads=heads,
        num_kv_heads=heads,
        text_vocab_size=llm["text_token_size"],
        speech_tokens=llm["speech_token_size"],
        rope_theta=SINUSOID_BASE,
        rms_norm_eps=LAYER_NORM_EPS,
        max_positions=MOST_POSITIONS,
        mix_ratio=WHOLE_TEXTS,
        input_width=llm["llm_input_size"],
        text_width=llm["text_encoder_input_size"],
        speaker_dim=llm["spk_embed_dim"],
        text_encoder=RelativeEncoderConfig(**text_encoder),
    )


def _flow(sections: Mapping[str, Section], vocoder: VocoderConfig) -> RegulatedFlowConfig:
    flow, cfm, estimator = (sections[name] for name in ("flow", "cfm", "estimator"))
    encoder = encoder_sizes("flow.encoder", sections["flow_encoder"], causal=False)
    _require_same("flow.encoder.input_size", encoder["width_in"], flow["input_size"])
    scheduler, ratios = cfm["cfm_params"]["t_scheduler"], sections["length_regulator"]["sampling_ratios"]
    require("cfm_params.t_scheduler", scheduler == "cosine", scheduler, "cosine")
    require("length_regulator.sampling_ratios", list(ratios) == [1, 1, 1, 1], ratios, "[1, 1, 1, 1]")
    _require_same("length_regulator.channels", sections["length_regulator"]["channels"], flow["output_size"])
    require("estimator.act_fn", estimator["act_fn"] == "gelu", estimator["act_fn"], "gelu")
    rate = flow["input_frame_rate"]
    require("flow.input_frame_rate", rate == TOKEN_RATE, rate, str(TOKEN_RATE))
    return RegulatedFlowConfig(
        token_vocab_size=flow["vocab_size"],
        token_width=flow["input_size"],
        mel_bins=flow["output_size"],
        speaker_dim=flow["spk_embed_dim"],
        lookahead_tokens=OVERLAP_TOKENS,
        frames_per_token=vocoder.sample_rate // (vocoder.hop * rate),
        token_rate=rate,
        cfg_rate=float(cfm["cfm_params"]["inference_cfg_rate"]),
        encoder=RegulatedEncoderConfig(**encoder, chunk_tokens=CHUNK_TOKENS),
        estimator=ResamplingEstimatorConfig(
            in_channels=estimator["in_channels"],
            channels=tuple(estimator["channels"]),
            num_heads=estimator["num_heads"],
            head_dim=estimator["attention_head_dim"],
            blocks_per_stage=estimator["n_blocks"],
            num_mid_stages=estimator["num_mid_blocks"],
        ),
        sample_rate=vocoder.sample_rate,
        mel_hop=vocoder.hop,
    )


def encoder_sizes(name: str, section: Section, *, causal: bool) -> dict[str, Any]:
    """Fields of :class:`RelativeEncoderConfig`."""
    for key, value in (
        ("input_layer", "linear"),
        ("pos_enc_layer_type", "rel_pos_espnet"),
        ("selfattention_layer_type", "rel_selfattn"),
        ("use_cnn_module", False),
        ("macaron_style", False),
    ):
        require(f"{name}.{key}", section[key] == value, section[key], repr(value))
    chunk = section.get("static_chunk_size", 0)
    require(f"{name}.static_chunk_size", chunk == int(causal), chunk, str(int(causal)))
    return {
        "width_in": section["input_size"],
        "width": section["output_size"],
        "num_heads": section["attention_heads"],
        "feed_forward_width": section["linear_units"],
        "num_layers": section["num_blocks"],
    }


def _require_same(name: str, value: object, other: object) -> None:
    require(name, value == other, value, f"{other}, the size beside it,")
