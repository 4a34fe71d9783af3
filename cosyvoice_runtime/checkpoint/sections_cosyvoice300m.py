"""CosyVoice-300M's configuration file, as sizes.

Constants that no configuration has are those of the published code (FunAudioLLM/CosyVoice ``ace7c47``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cosyvoice_runtime.checkpoint.config import ModelConfig, SampledPhaseVocoderConfig, VocoderConfig
from cosyvoice_runtime.checkpoint.config_flow import (
    RegulatedEncoderConfig,
    RegulatedFlowConfig,
    ResamplingEstimatorConfig,
)
from cosyvoice_runtime.checkpoint.config_lm import (
    LAYER_NORM_EPS,
    TOKEN_RATE,
    WHOLE_TEXTS,
    RelativeEncoderConfig,
    TransformerLMConfig,
)
from cosyvoice_runtime.checkpoint.sections import (
    Section,
    read_sections,
    require,
    vocoder_sizes,
)

MOST_POSITIONS = 5000
"""Length of the published table of relative positions."""
SINUSOID_BASE = 10_000.0
CHUNK_TOKENS, OVERLAP_TOKENS = 100, 20
"""Tokens by which a stream goes on, and those after them that its next chunk speaks again."""


CLASSES = {
    "llm": ("llm", "TransformerLM"),
    "text_encoder": ("llm.text_encoder", "ConformerEncoder"),
    "llm_transformer": ("llm.llm", "TransformerEncoder"),
    "flow": ("flow", "MaskedDiffWithXvec"),
    "flow_encoder": ("flow.encoder", "ConformerEncoder"),
    "length_regulator": ("flow.length_regulator", "InterpolateRegulator"),
    "cfm": ("flow.decoder", "ConditionalCFM"),
    "estimator": ("flow.decoder.estimator", "ConditionalDecoder"),
    "hift": ("hift", "HiFTGenerator"),
    "f0": ("hift.f0_predictor", "ConvRNNF0Predictor"),
}
"""Places and published classes of the sections."""


def read_config(tree: Mapping[str, Any], qwen2: Section) -> ModelConfig:  # noqa: ARG001
    """The sizes in ``cosyvoice.yaml``, which says everything."""
    return config_from_sections(read_sections(tree, CLASSES))


def config_from_sections(sections: Mapping[str, Section]) -> ModelConfig:
    """Build from upstream's constructor arguments.

    Args:
        sections: ``llm``, ``text_encoder``, ``llm_transformer``, ``flow``, ``flow_encoder``,
            ``length_regulator``, ``cfm``, ``estimator``, ``hift`` and ``f0``, each with the argument names of
            the published configuration.

    Raises:
        KeyError: a section or key is missing.
        CheckpointError: a value asks for something that no published
            CosyVoice-300M checkpoint has.
    """
    vocoder = SampledPhaseVocoderConfig(**vocoder_sizes(sections["hift"], sections["f0"]))
    return ModelConfig(_speech_lm(sections), _flow(sections, vocoder), vocoder)


def _speech_lm(sections: Mapping[str, Section]) -> TransformerLMConfig:
    llm, transformer = sections["llm"], sections["llm_transformer"]
    layer = transformer["input_layer"]
    require("llm.llm.input_layer", layer == "linear_legacy", layer, "linear_legacy")
    _require_same("llm.llm.input_size", transformer["input_size"], llm["llm_input_size"])
    _require_same("llm.llm.output_size", transformer["output_size"], llm["llm_output_size"])
    text_encoder = _encoder_sizes("llm.text_encoder", sections["text_encoder"], causal=True)
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
    encoder = _encoder_sizes("flow.encoder", sections["flow_encoder"], causal=False)
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


def _encoder_sizes(name: str, section: Section, *, causal: bool) -> dict[str, Any]:
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
