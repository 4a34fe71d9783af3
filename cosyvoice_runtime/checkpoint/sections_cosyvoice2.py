"""CosyVoice2's configuration file, as sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cosyvoice_runtime.checkpoint import hyperpyyaml
from cosyvoice_runtime.checkpoint.config import ModelConfig, VocoderConfig
from cosyvoice_runtime.checkpoint.config_flow import EncoderConfig, EstimatorConfig, FlowConfig
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
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

PUBLISHED_UP_LAYERS = 4
"""Fixed in the published encoder's code; ``encoder_up_blocks`` in our own yaml may say otherwise."""


def read_config(tree: Mapping[str, Any], qwen2: Section) -> ModelConfig:
    """Out of ``cosyvoice2.yaml``: constructor arguments of the published classes, references resolved."""
    resolve = hyperpyyaml.Resolver(tree).resolve
    llm = arguments("llm", resolve(tree.get("llm")), "Qwen2LM")
    flow = arguments("flow", resolve(tree.get("flow")), "CausalMaskedDiffWithXvec")
    hift = arguments("hift", resolve(tree.get("hift")), "HiFTGenerator")
    cfm = arguments("flow.decoder", flow.get("decoder"), "CausalConditionalCFM")
    sections = {
        "llm": llm,
        "qwen2": qwen2,
        "flow": flow,
        "encoder": arguments("flow.encoder", flow.get("encoder"), "UpsampleConformerEncoder"),
        "cfm": {**cfm, "cfm_params": unwrapped(cfm.get("cfm_params"))},
        "estimator": arguments("flow.decoder.estimator", cfm.get("estimator"), "CausalConditionalDecoder"),
        "hift": hift,
        "f0": arguments("hift.f0_predictor", hift.get("f0_predictor"), "ConvRNNF0Predictor"),
    }
    return config_from_sections(sections, tree.get("encoder_up_blocks", PUBLISHED_UP_LAYERS))


def config_from_sections(sections: Mapping[str, Section], num_up_layers: int = 4) -> ModelConfig:
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
        return ModelConfig(
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
