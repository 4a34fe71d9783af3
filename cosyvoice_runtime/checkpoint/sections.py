"""A checkpoint's configuration files, read as the sizes of its networks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from cosyvoice_runtime.checkpoint import hyperpyyaml
from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.config_lm import WHOLE_TEXTS
from cosyvoice_runtime.checkpoint.flow_schedule import FlowSchedule
from cosyvoice_runtime.checkpoint.hyperpyyaml import Tagged
from cosyvoice_runtime.checkpoint.json_file import read_json
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.errors import CheckpointError, shorten
from cosyvoice_runtime.families import load

Section = Mapping[str, Any]
"""Arguments of one published class, by name."""


def speech_lm_sizes(llm: Section, qwen2: Section) -> dict[str, Any]:
    """Fields of :class:`~cosyvoice_runtime.checkpoint.config.SpeechLMConfig`."""
    return {
        "hidden_size": qwen2["hidden_size"],
        "intermediate_size": qwen2["intermediate_size"],
        "num_layers": qwen2["num_hidden_layers"],
        "num_heads": qwen2["num_attention_heads"],
        "num_kv_heads": qwen2["num_key_value_heads"],
        "text_vocab_size": qwen2["vocab_size"],
        "speech_tokens": llm["speech_token_size"],
        "rope_theta": float(qwen2["rope_theta"]),
        "rms_norm_eps": float(qwen2["rms_norm_eps"]),
        "max_positions": qwen2["max_position_embeddings"],
        "mix_ratio": (llm["mix_ratio"][0], llm["mix_ratio"][1]),
    }


def flow_sizes(flow: Section, cfm: Section) -> dict[str, Any]:
    """Fields of :class:`~cosyvoice_runtime.checkpoint.config.FlowConfig` but its two large parts."""
    scheduler = cfm["cfm_params"]["t_scheduler"]
    require("cfm_params.t_scheduler", scheduler == "cosine", scheduler, "cosine")
    return {
        "token_vocab_size": flow["vocab_size"],
        "token_width": flow["input_size"],
        "mel_bins": flow["output_size"],
        "speaker_dim": flow["spk_embed_dim"],
        "lookahead_tokens": flow["pre_lookahead_len"],
        "frames_per_token": flow["token_mel_ratio"],
        "token_rate": flow["input_frame_rate"],
        "cfg_rate": float(cfm["cfm_params"]["inference_cfg_rate"]),
    }


def vocoder_sizes(hift: Section, f0: Section) -> dict[str, Any]:
    """Fields of :class:`~cosyvoice_runtime.checkpoint.config.VocoderConfig`."""
    return {
        "mel_bins": hift["in_channels"],
        "base_channels": hift["base_channels"],
        "num_harmonics": hift["nb_harmonics"],
        "sample_rate": hift["sampling_rate"],
        "sine_amplitude": float(hift["nsf_alpha"]),
        "noise_std": float(hift["nsf_sigma"]),
        "voiced_threshold_hz": float(hift["nsf_voiced_threshold"]),
        "upsample_rates": tuple(hift["upsample_rates"]),
        "upsample_kernels": tuple(hift["upsample_kernel_sizes"]),
        "istft_size": hift["istft_params"]["n_fft"],
        "istft_hop": hift["istft_params"]["hop_len"],
        "resblock_kernels": tuple(hift["resblock_kernel_sizes"]),
        "resblock_dilations": tuple(tuple(row) for row in hift["resblock_dilation_sizes"]),
        "source_kernels": tuple(hift["source_resblock_kernel_sizes"]),
        "source_dilations": tuple(tuple(row) for row in hift["source_resblock_dilation_sizes"]),
        "leaky_slope": float(hift["lrelu_slope"]),
        "audio_limit": float(hift["audio_limit"]),
        "f0_channels": f0["cond_channels"],
    }


def require(name: str, holds: bool, value: object, expected: str) -> None:
    """Raise CheckpointError unless a key has the one value that is supported."""
    if not holds:
        raise CheckpointError(f"configuration: {name} is {value!r}; only {expected} is supported")


def arguments(key: str, node: Any, class_name: str) -> dict[str, Any]:
    """The arguments of a published class; a CheckpointError tells that the node is no such class."""
    if not isinstance(node, Tagged) or not isinstance(node.arguments, dict):
        raise CheckpointError(f"{key}: expected !new:...{class_name} with arguments, found {shorten(node)}")
    if node.class_name != class_name:
        raise CheckpointError(f"{key}: {node.tag} is not supported; only {class_name} is")
    return node.arguments


def read_sections(tree: Mapping[str, Any], classes: Mapping[str, tuple[str, str]]) -> dict[str, Section]:
    """Constructor arguments of the published classes by section, references resolved.

    Args:
        tree: content of the configuration file.
        classes: place of each section (``flow.decoder``), after that of what it lies in, and its class.

    Raises:
        CheckpointError: a section is missing or of another class.
    """
    resolve = hyperpyyaml.Resolver(tree).resolve
    found: dict[str, dict[str, Any]] = {}
    for place, class_name in classes.values():
        outer, _, key = place.rpartition(".")
        node = found[outer].get(key) if outer else resolve(tree.get(key))
        found[place] = arguments(place, node, class_name)
    flow_matching = found["flow.decoder"]
    parameters = flow_matching.get("cfm_params")
    if isinstance(parameters, Tagged):  # published as !new:omegaconf.DictConfig
        flow_matching["cfm_params"] = parameters.arguments["content"]
    return {name: found[place] for name, (place, _) in classes.items()}


LARGEST_NUMBER = 10_000_000
"""Above every published size and constant (rope_theta is 1e6)."""


def load_config(directory: str | Path) -> ModelConfig:
    """Architecture from the family's yaml file, where its speech LM is a Qwen2 from
    ``CosyVoice-BlankEN/config.json``, and of a distilled flow from ``flow_schedule.json``, read as plain
    data.

    Raises:
        CheckpointError: a file or key is missing or damaged, or the directory describes a model of another
            family than its yaml file is named for.
    """
    layout = Layout(directory)
    tree = hyperpyyaml.read(layout.config)
    files = [layout.config, *([layout.qwen2_config] if layout.family.has_qwen2 else [])]
    qwen2 = read_json(layout.qwen2_config) if layout.family.has_qwen2 else {}
    try:
        config: ModelConfig = load(layout.family.read_config)(tree, qwen2)
        check_numbers(config)
    except KeyError as error:
        raise CheckpointError(f"{' with '.join(map(str, files))}: lacks the key {error}") from error
    except (CheckpointError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise CheckpointError(f"{' with '.join(map(str, files))}: {error}") from error
    return dataclasses.replace(config, flow=FlowSchedule.of(layout).applied(config.flow))


MAY_BE_ZERO = ("cfg_rate", "meanflow")
"""Leaves of a configuration that may be 0, or false."""


def check_numbers(value: Any, name: str = "configuration") -> None:
    """Require every leaf of a configuration to be a number that a size or a constant can be.

    Raises:
        CheckpointError: a leaf is of another type, not positive, or absurdly large.
    """
    if is_dataclass(value):
        for field in fields(value):
            item = getattr(value, field.name)
            if item != WHOLE_TEXTS and not (field.name in MAY_BE_ZERO and item == 0):
                check_numbers(item, f"{name}.{field.name}")
    elif isinstance(value, tuple):
        for item in value:
            check_numbers(item, name)
    elif type(value) not in (int, float) or not 0 < value <= LARGEST_NUMBER:
        raise CheckpointError(
            f"{name} is {shorten(value)}, expected a number above 0, at most {LARGEST_NUMBER}"
        )
