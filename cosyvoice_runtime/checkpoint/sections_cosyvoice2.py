"""CosyVoice2's configuration file, as sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cosyvoice_runtime.checkpoint.config import ModelConfig, VocoderConfig
from cosyvoice_runtime.checkpoint.config_flow import EncoderConfig, EstimatorConfig, FlowConfig
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.sections import (
    Section,
    flow_sizes,
    read_sections,
    require,
    speech_lm_sizes,
    vocoder_sizes,
)

PUBLISHED_UP_LAYERS = 4
"""Fixed in the published encoder's code; ``encoder_up_blocks`` in our own yaml may say otherwise."""


CLASSES = {
    "llm": ("llm", "Qwen2LM"),
    "flow": ("flow", "CausalMaskedDiffWithXvec"),
    "encoder": ("flow.encoder", "UpsampleConformerEncoder"),
    "cfm": ("flow.decoder", "CausalConditionalCFM"),
    "estimator": ("flow.decoder.estimator", "CausalConditionalDecoder"),
    "hift": ("hift", "HiFTGenerator"),
    "f0": ("hift.f0_predictor", "ConvRNNF0Predictor"),
}
"""Places and published classes of the sections."""


def read_config(tree: Mapping[str, Any], qwen2: Section) -> ModelConfig:
    """The sizes in ``cosyvoice2.yaml``."""
    sections = {**read_sections(tree, CLASSES), "qwen2": qwen2}
    return config_from_sections(sections, tree.get("encoder_up_blocks", PUBLISHED_UP_LAYERS))


def config_from_sections(sections: Mapping[str, Section], num_up_layers: int = 4) -> ModelConfig:
    """Build from upstream's constructor arguments.

    Args:
        sections: ``llm``, ``qwen2``, ``flow``, ``encoder``, ``cfm``, ``estimator``, ``hift`` and
            ``f0``, each with the argument names of the published configuration.
        num_up_layers: layers after the up-sampling; the published code fixes it at 4.

    Raises:
        KeyError: a section or key is missing.
        CheckpointError: a value asks for something that no
            published CosyVoice2 checkpoint has.
    """
    return ModelConfig(
        speech_lm=SpeechLMConfig(**speech_lm_sizes(sections["llm"], sections["qwen2"])),
        flow=_flow(sections, num_up_layers),
        vocoder=VocoderConfig(**vocoder_sizes(sections["hift"], sections["f0"])),
    )


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
