"""An adapter beside a checkpoint is folded into the speech LM, for every engine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.tensors import load_tensors
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.lm.engines.tensorrt_llm.checkpoint import Source
from cosyvoice_runtime.lm.onnx.files import wanted_manifest
from cosyvoice_runtime.local import SpeechRequest, Synthesizer
from making import make_checkpoint

ZEROS = np.zeros((4, 4), np.float32)
QUERY = "llm.model.model.layers.0.self_attn.q_proj"
DOWN = "llm.model.model.layers.1.mlp.down_proj"
CONFIG = {
    "peft_type": "LORA", "r": 4, "lora_alpha": 8, "bias": "none", "target_modules": ["q_proj", "down_proj"],
}  # fmt: skip


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    made = make_checkpoint(tmp_path / "made", "tiny", seed=4)
    (made / "SHA256SUMS").unlink()
    return made


def tensors_of(checkpoint: Path) -> dict[str, np.ndarray[Any, Any]]:
    return load_tensors(Layout(checkpoint), "llm", load_config(checkpoint))


def adapter_for(checkpoint: Path, named: Callable[[str], str] = str) -> dict[str, Any]:
    """Matrices for two layers, large enough to be heard; ``named`` gives a layer the adapter's name."""
    random, matrices = np.random.default_rng(0), {}
    weights = tensors_of(checkpoint)
    for layer in (QUERY, DOWN):
        outputs, inputs = weights[f"{layer}.weight"].shape
        matrices[f"{named(layer)}.lora_A.weight"] = random.normal(size=(4, inputs)).astype(np.float32)
        matrices[f"{named(layer)}.lora_B.weight"] = random.normal(size=(outputs, 4)).astype(np.float32)
    return matrices


def lay_beside(checkpoint: Path, matrices: dict[str, Any], **config: Any) -> None:
    folder = checkpoint / "lora"
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(CONFIG | config))
    save_file(matrices, folder / "adapter_model.safetensors")


NAMES: dict[str, Callable[[str], str]] = {
    "as published": str,
    "around the speech LM": "base_model.model.{}".format,
    "around its Qwen2": lambda layer: "base_model.model." + layer.removeprefix("llm.model."),
}


@pytest.mark.parametrize("named", NAMES)
@pytest.mark.parametrize(
    ("config", "scale"),
    [
        ({}, 2.0),
        ({"lora_alpha": 4}, 1.0),
        ({"use_rslora": True}, 4.0),
        ({"alpha_pattern": {"q_proj": 16, "down_proj": 16}}, 4.0),
        ({"r": 1, "rank_pattern": {"q_proj": 4, "layers.1.mlp.down_proj": 4}}, 2.0),
    ],
    ids=str,
)
def test_weights_are_those_of_the_paper(checkpoint, named, config, scale):
    plain, name_of = tensors_of(checkpoint), NAMES[named]
    matrices = adapter_for(checkpoint, name_of)
    lay_beside(checkpoint, matrices, **config)
    folded = tensors_of(checkpoint)
    assert folded.keys() == plain.keys()
    for layer in (QUERY, DOWN):
        down, up = (torch.from_numpy(matrices[f"{name_of(layer)}.lora_{side}.weight"]) for side in "AB")
        weight = folded.pop(f"{layer}.weight")
        expected = torch.from_numpy(np.array(plain[f"{layer}.weight"])) + scale * (up @ down)
        np.testing.assert_allclose(weight, expected.numpy(), rtol=1e-5, atol=1e-5)
        assert weight.dtype == plain[f"{layer}.weight"].dtype
    assert all(np.array_equal(array, plain[name]) for name, array in folded.items())


def test_speech_is_that_of_the_merged_weights(checkpoint):
    plain = spoken(checkpoint)
    lay_beside(checkpoint, adapter_for(checkpoint))
    adapted = spoken(checkpoint)
    assert len(adapted) != len(plain) or not np.allclose(adapted, plain)
    merged = {name: torch.from_numpy(np.array(array)) for name, array in tensors_of(checkpoint).items()}
    shutil.rmtree(checkpoint / "lora")
    torch.save(merged, checkpoint / "llm.pt")
    assert np.array_equal(spoken(checkpoint), adapted)


def spoken(checkpoint: Path) -> np.ndarray[Any, Any]:
    library = Synthesizer.from_checkpoint(checkpoint, ode_steps=2)
    voice = next(iter(library.speakers.values()))
    request = SpeechRequest("Hello there.", voice, seed=3, sampling=SamplingOptions(max_tokens=25))
    return np.concatenate([chunk.samples for chunk in library.synthesize(request)])


def test_what_is_converted_depends_on_the_adapter(checkpoint):
    names = {"lora/adapter_config.json", "lora/adapter_model.safetensors"}
    assert not names & Source.open(checkpoint).names().keys()
    before = wanted_manifest(Layout(checkpoint), "float32")
    lay_beside(checkpoint, adapter_for(checkpoint))
    assert names < Source.open(checkpoint).names().keys()
    assert wanted_manifest(Layout(checkpoint), "float32") != before
    assert names < set(Layout(checkpoint).names())


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'; only 'LORA' is understood"),
        ({"use_dora": True}, "use_dora is True"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"lora_alpha": "8"}, "lora_alpha of .* is '8', and no number"),
        ({"r": 8}, "has rank 4, its configuration 8"),
    ],
    ids=str,
)
def test_another_kind_of_adapter_is_refused(checkpoint, config, told):
    lay_beside(checkpoint, adapter_for(checkpoint), **config)
    with pytest.raises(CheckpointError, match=told):
        tensors_of(checkpoint)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({f"{QUERY}.lora_B.weight": None}, "has one matrix of two"),
        ({f"{QUERY}.lora_B.weight": np.zeros((9, 4), np.float32)}, r"is made for \(9, 64\)"),
        ({f"{QUERY}.lora_B.weight": np.zeros((64, 3), np.float32)}, "which don't fit each other"),
        ({f"{QUERY}.lora_A.weight": np.full((4, 64), np.nan, np.float32)}, "has NaN or infinity"),
        ({"nobody.lora_A.weight": ZEROS, "nobody.lora_B.weight": ZEROS}, "no layers of the name nobody"),
        ({"speech_embedding.lora_embedding_A": ZEROS}, "is no matrix of a linear layer's adapter"),
    ],
)
def test_matrices_that_do_not_fit_are_refused_by_name(checkpoint, changed, told):
    matrices = adapter_for(checkpoint)
    for name, array in changed.items():
        if array is None:
            del matrices[name]
        else:
            matrices[name] = array
    lay_beside(checkpoint, matrices)
    with pytest.raises(CheckpointError, match=told):
        tensors_of(checkpoint)


def test_a_folder_without_its_files_is_refused(checkpoint):
    (checkpoint / "lora").mkdir()
    with pytest.raises(CheckpointError, match=r"lora/adapter_config\.json is missing"):
        tensors_of(checkpoint)
