"""CosyVoice3's configuration file, as sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cosyvoice_runtime.checkpoint.config import CausalVocoderConfig, ModelConfig
from cosyvoice_runtime.checkpoint.config_flow import DiTConfig, FlowConfig, LookAheadConfig
from cosyvoice_runtime.checkpoint.config_lm import OneTableSpeechLMConfig
from cosyvoice_runtime.checkpoint.sections import (
    Section,
    flow_sizes,
    read_sections,
    require,
    speech_lm_sizes,
    vocoder_sizes,
)

CLASSES = {
    "llm": ("llm", "CosyVoice3LM"),
    "flow": ("flow", "CausalMaskedDiffWithDiT"),
    "pre_lookahead": ("flow.pre_lookahead_layer", "PreLookaheadLayer"),
    "cfm": ("flow.decoder", "CausalConditionalCFM"),
    "estimator": ("flow.decoder.estimator", "DiT"),
    "hift": ("hift", "CausalHiFTGenerator"),
    "f0": ("hift.f0_predictor", "CausalConvRNNF0Predictor"),
}
"""Places and published classes of the sections."""


def read_config(tree: Mapping[str, Any], qwen2: Section) -> ModelConfig:
    """The sizes in ``cosyvoice3.yaml``."""
    return config_from_sections({**read_sections(tree, CLASSES), "qwen2": qwen2})


def config_from_sections(sections: Mapping[str, Section]) -> ModelConfig:
    """Build from upstream's constructor arguments.

    Args:
        sections: ``llm``, ``qwen2``, ``flow``, ``pre_lookahead``, ``cfm``, ``estimator``, ``hift`` and
            ``f0``, each with the argument names of the published configuration.

    Raises:
        KeyError: a section or key is missing.
        CheckpointError: a value asks for something that no published
            CosyVoice3 checkpoint has.
    """
    return ModelConfig(
        speech_lm=OneTableSpeechLMConfig(**speech_lm_sizes(sections["llm"], sections["qwen2"])),
        flow=_flow(sections),
        vocoder=CausalVocoderConfig(
            **vocoder_sizes(sections["hift"], sections["f0"]),
            lookahead_frames=sections["hift"]["conv_pre_look_right"],
        ),
    )


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
