"""The published directory's configuration files, as the sections that :class:`ModelConfig` is built from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from cosyvoice_runtime.checkpoint import config_cosyvoice300m, hyperpyyaml
from cosyvoice_runtime.checkpoint.config import WHOLE_TEXTS, ModelConfig
from cosyvoice_runtime.checkpoint.config_cosyvoice3 import config_from_sections
from cosyvoice_runtime.checkpoint.family import COSYVOICE2, COSYVOICE3, COSYVOICE_300M, Family
from cosyvoice_runtime.checkpoint.hyperpyyaml import Tagged
from cosyvoice_runtime.checkpoint.json_file import read_json
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.published_sizes import Section
from cosyvoice_runtime.errors import CheckpointError, shorten

PUBLISHED_UP_LAYERS = 4
"""Fixed in the published encoder's code; ``encoder_up_blocks`` in our own yaml may say otherwise."""
LARGEST_NUMBER = 10_000_000
"""Above every published size and constant (rope_theta is 1e6)."""


def load_config(directory: str | Path) -> ModelConfig:
    """Architecture from the family's yaml file and, where its speech LM is a Qwen2, from
    ``CosyVoice-BlankEN/config.json``, read as plain data.

    Raises:
        CheckpointError: a file or key is missing or damaged, or the directory describes a model of another
            family than its yaml file is named for.
    """
    layout = Layout(directory)
    tree = hyperpyyaml.read(layout.config)
    files = [layout.config, *([layout.qwen2_config] if layout.family.has_qwen2 else [])]
    qwen2 = read_json(layout.qwen2_config) if layout.family.has_qwen2 else {}
    try:
        config = CONFIGS[layout.family](tree, qwen2)
        check_numbers(config)
    except (CheckpointError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise CheckpointError(f"{' with '.join(map(str, files))}: {error}") from error
    return config


def check_numbers(value: Any, name: str = "configuration") -> None:
    """Require every leaf of a configuration to be a number that a size or a constant can be.

    Raises:
        CheckpointError: a leaf is of another type, not positive, or absurdly large.
    """
    if is_dataclass(value):
        for field in fields(value):
            item = getattr(value, field.name)
            if item != WHOLE_TEXTS:
                check_numbers(item, f"{name}.{field.name}")
    elif isinstance(value, tuple):
        for item in value:
            check_numbers(item, name)
    elif type(value) not in (int, float) or not 0 < value <= LARGEST_NUMBER:
        raise CheckpointError(
            f"{name} is {shorten(value)}, expected a number above 0, at most {LARGEST_NUMBER}"
        )


def cosyvoice2_config(tree: Mapping[str, Any], qwen2: Section) -> ModelConfig:
    """Out of ``cosyvoice2.yaml``: constructor arguments of the published classes, references resolved."""
    resolve = hyperpyyaml.Resolver(tree).resolve
    llm = _arguments("llm", resolve(tree.get("llm")), "Qwen2LM")
    flow = _arguments("flow", resolve(tree.get("flow")), "CausalMaskedDiffWithXvec")
    hift = _arguments("hift", resolve(tree.get("hift")), "HiFTGenerator")
    cfm = _arguments("flow.decoder", flow.get("decoder"), "CausalConditionalCFM")
    sections = {
        "llm": llm,
        "qwen2": qwen2,
        "flow": flow,
        "encoder": _arguments("flow.encoder", flow.get("encoder"), "UpsampleConformerEncoder"),
        "cfm": {**cfm, "cfm_params": _unwrapped(cfm.get("cfm_params"))},
        "estimator": _arguments("flow.decoder.estimator", cfm.get("estimator"), "CausalConditionalDecoder"),
        "hift": hift,
        "f0": _arguments("hift.f0_predictor", hift.get("f0_predictor"), "ConvRNNF0Predictor"),
    }
    return ModelConfig.from_sections(sections, tree.get("encoder_up_blocks", PUBLISHED_UP_LAYERS))


def cosyvoice3_config(tree: Mapping[str, Any], qwen2: Section) -> ModelConfig:
    """Out of ``cosyvoice3.yaml``."""
    resolve = hyperpyyaml.Resolver(tree).resolve
    llm = _arguments("llm", resolve(tree.get("llm")), "CosyVoice3LM")
    flow = _arguments("flow", resolve(tree.get("flow")), "CausalMaskedDiffWithDiT")
    hift = _arguments("hift", resolve(tree.get("hift")), "CausalHiFTGenerator")
    cfm = _arguments("flow.decoder", flow.get("decoder"), "CausalConditionalCFM")
    look_ahead = flow.get("pre_lookahead_layer")
    return config_from_sections(
        {
            "llm": llm,
            "qwen2": qwen2,
            "flow": flow,
            "pre_lookahead": _arguments("flow.pre_lookahead_layer", look_ahead, "PreLookaheadLayer"),
            "cfm": {**cfm, "cfm_params": _unwrapped(cfm.get("cfm_params"))},
            "estimator": _arguments("flow.decoder.estimator", cfm.get("estimator"), "DiT"),
            "hift": hift,
            "f0": _arguments("hift.f0_predictor", hift.get("f0_predictor"), "CausalConvRNNF0Predictor"),
        }
    )


def cosyvoice300m_config(tree: Mapping[str, Any], qwen2: Section) -> ModelConfig:  # noqa: ARG001
    """Out of ``cosyvoice.yaml``, which says everything."""
    resolve = hyperpyyaml.Resolver(tree).resolve
    llm = _arguments("llm", resolve(tree.get("llm")), "TransformerLM")
    flow = _arguments("flow", resolve(tree.get("flow")), "MaskedDiffWithXvec")
    hift = _arguments("hift", resolve(tree.get("hift")), "HiFTGenerator")
    cfm = _arguments("flow.decoder", flow.get("decoder"), "ConditionalCFM")
    regulator = flow.get("length_regulator")
    return config_cosyvoice300m.config_from_sections(
        {
            "llm": llm,
            "text_encoder": _arguments("llm.text_encoder", llm.get("text_encoder"), "ConformerEncoder"),
            "llm_transformer": _arguments("llm.llm", llm.get("llm"), "TransformerEncoder"),
            "flow": flow,
            "flow_encoder": _arguments("flow.encoder", flow.get("encoder"), "ConformerEncoder"),
            "length_regulator": _arguments("flow.length_regulator", regulator, "InterpolateRegulator"),
            "cfm": {**cfm, "cfm_params": _unwrapped(cfm.get("cfm_params"))},
            "estimator": _arguments("flow.decoder.estimator", cfm.get("estimator"), "ConditionalDecoder"),
            "hift": hift,
            "f0": _arguments("hift.f0_predictor", hift.get("f0_predictor"), "ConvRNNF0Predictor"),
        }
    )


CONFIGS: dict[Family, Callable[[Mapping[str, Any], Section], ModelConfig]] = {
    COSYVOICE2: cosyvoice2_config,
    COSYVOICE3: cosyvoice3_config,
    COSYVOICE_300M: cosyvoice300m_config,
}
"""Content of the family's yaml file and the Qwen2 ``config.json``, if it has one, to an architecture."""


def _arguments(key: str, node: Any, class_name: str) -> dict[str, Any]:
    if not isinstance(node, Tagged) or not isinstance(node.arguments, dict):
        raise CheckpointError(f"{key}: expected !new:...{class_name} with arguments, found {shorten(node)}")
    if node.class_name != class_name:
        raise CheckpointError(f"{key}: {node.tag} is not supported; only {class_name} is")
    return node.arguments


def _unwrapped(node: Any) -> Any:
    """``cfm_params`` is published as ``!new:omegaconf.DictConfig`` with its dictionary under ``content``."""
    return node.arguments["content"] if isinstance(node, Tagged) else node
