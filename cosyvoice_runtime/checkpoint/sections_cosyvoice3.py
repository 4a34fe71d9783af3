"""CosyVoice3's configuration file, as sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cosyvoice_runtime.checkpoint import hyperpyyaml
from cosyvoice_runtime.checkpoint.config import CausalVocoderConfig, ModelConfig
from cosyvoice_runtime.checkpoint.config_flow import DiTConfig, FlowConfig, LookAheadConfig
from cosyvoice_runtime.checkpoint.config_lm import OneTableSpeechLMConfig
from cosyvoice_runtime.checkpoint.sections import (
    Section,
    arguments,
    flow_sizes,
    require,
    speech_lm_sizes,
    unwrapped,
    vocoder_sizes,
)
from cosyvoice_runtime.errors import CheckpointError


def read_config(tree: Mapping[str, Any], qwen2: Section) -> ModelConfig:
    """Out of ``cosyvoice3.yaml``."""
    resolve = hyperpyyaml.Resolver(tree).resolve
    llm = arguments("llm", resolve(tree.get("llm")), "CosyVoice3LM")
    flow = arguments("flow", resolve(tree.get("flow")), "CausalMaskedDiffWithDiT")
    hift = arguments("hift", resolve(tree.get("hift")), "CausalHiFTGenerator")
    cfm = arguments("flow.decoder", flow.get("decoder"), "CausalConditionalCFM")
    look_ahead = flow.get("pre_lookahead_layer")
    return config_from_sections(
        {
            "llm": llm,
            "qwen2": qwen2,
            "flow": flow,
            "pre_lookahead": arguments("flow.pre_lookahead_layer", look_ahead, "PreLookaheadLayer"),
            "cfm": {**cfm, "cfm_params": unwrapped(cfm.get("cfm_params"))},
            "estimator": arguments("flow.decoder.estimator", cfm.get("estimator"), "DiT"),
            "hift": hift,
            "f0": arguments("hift.f0_predictor", hift.get("f0_predictor"), "CausalConvRNNF0Predictor"),
        }
    )


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
