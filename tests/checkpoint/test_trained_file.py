"""Weights as training leaves them: every reader takes the network, and the log says what it left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file, save_model
from training_forms import (
    FORMS,
    Tree,
    assert_equal,
    deepspeed,
    load,
    original,
    prefixed,
    with_optimizer,
    without,
)

from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.checkpoint import verify_checkpoint
from cosyvoice_runtime.checkpoint.layout import PARTS
from cosyvoice_runtime.checkpoint.tensors import TEXT_HEAD, TEXT_TABLE
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.lm.engines.tensorrt_llm.checkpoint import Source
from cosyvoice_runtime.local import SpeechRequest, Synthesizer
from making import make_checkpoint


@pytest.mark.parametrize("form", FORMS)
def test_network_is_found_in_what_training_wrote(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    monkeypatch.chdir(checkpoint)
    write, told = FORMS[form]
    for part in PARTS:
        expected = original(checkpoint, part)
        torch.save(write(expected), checkpoint / f"{part}.pt")
        caplog.clear()
        assert_equal(load(checkpoint, part), expected)
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == bool(told)
        assert told in "".join(lines)
    assert verify_checkpoint(checkpoint) == []
    assert not Path("proof").exists()


@pytest.mark.parametrize("family", ["cosyvoice2", "cosyvoice3", "cosyvoice300m"])
@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_every_network_of_every_family_is_found(tmp_path: Path, family: str, suffix: str) -> None:
    directory = make_checkpoint(tmp_path / "made", "tiny", seed=3, family=family)
    (directory / "SHA256SUMS").unlink()
    for part in PARTS:
        expected = original(directory, part)
        content = prefixed("module._orig_mod.")({name: tensor.clone() for name, tensor in expected.items()})
        content["step"] = torch.tensor(5)
        (directory / f"{part}.pt").unlink()
        path = directory / f"{part}.{suffix}"
        torch.save(content, path) if suffix == "pt" else save_file(content, path)
        assert_equal(load(directory, part), expected)
    assert verify_checkpoint(directory) == []


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_every_precision_of_training_is_read(
    checkpoint: Path, caplog: pytest.LogCaptureFixture, dtype: torch.dtype
) -> None:
    expected = {name: tensor.to(dtype) for name, tensor in original(checkpoint, "flow").items()}
    torch.save(expected, checkpoint / "flow.pt")
    read = torch.float32 if dtype == torch.float64 else dtype
    assert_equal(load(checkpoint, "flow"), {name: tensor.to(read) for name, tensor in expected.items()})
    assert ("float64 is read as float32" in caplog.text) == (dtype == torch.float64)


def test_views_of_one_storage_and_transposed_tensors_are_read(checkpoint: Path) -> None:
    expected = original(checkpoint, "hift")
    whole = torch.cat([tensor.flatten() for tensor in expected.values()])
    places = torch.tensor([0, *(tensor.numel() for tensor in expected.values())]).cumsum(0).tolist()
    views = {
        name: whole[place : place + tensor.numel()].view(tensor.shape)
        for (name, tensor), place in zip(expected.items(), places, strict=False)
    }
    torch.save(views, checkpoint / "hift.pt")
    assert_equal(load(checkpoint, "hift"), expected)
    torch.save(
        {name: tensor.mT.contiguous().mT if tensor.ndim > 1 else tensor for name, tensor in expected.items()},
        checkpoint / "hift.pt",
    )
    assert_equal(load(checkpoint, "hift"), expected)


@pytest.mark.parametrize("name", [TEXT_HEAD, TEXT_TABLE])
def test_one_of_the_tied_tensors_may_be_missing_behind_any_beginning(checkpoint: Path, name: str) -> None:
    expected = original(checkpoint, "llm")
    torch.save({"ema": prefixed("module.")(without(expected, name))}, checkpoint / "llm.pt")
    assert_equal(load(checkpoint, "llm"), expected)


def test_safetensors_without_names_of_shared_memory_is_read(checkpoint: Path) -> None:
    """``save_model``, which Hugging Face's trainers use, keeps one name of each tensor, here the head's."""
    expected = original(checkpoint, "llm")
    (checkpoint / "llm.pt").unlink()
    network = Tree(expected)
    network.get_submodule("llm.model.lm_head").weight = network.get_parameter(TEXT_TABLE)
    save_model(network, str(checkpoint / "llm.safetensors"))
    with safe_open(checkpoint / "llm.safetensors", "pt") as file:
        assert TEXT_TABLE not in file.keys()  # noqa: SIM118 - no mapping
    assert_equal(load(checkpoint, "llm"), expected)


def test_safetensors_of_a_strange_dtype_beside_the_network_is_skipped(
    checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = original(checkpoint, "hift")
    (checkpoint / "hift.pt").unlink()
    extra = {"seen": torch.ones(2, dtype=torch.uint16), "step": torch.tensor(1)}
    save_file({**expected, **extra}, checkpoint / "hift.safetensors")
    assert_equal(load(checkpoint, "hift"), expected)
    assert "skipped 'step', 'seen' (dtype U16)" in caplog.text


def test_hostile_names_cost_no_more_than_they_are_long(checkpoint: Path) -> None:
    """Neither a name of dots alone nor dictionaries in dictionaries are looked through again and again."""
    deep: dict[str, Any] = {}
    for _ in range(90):
        deep = {"." * 400: deep, "x": deep}
    expected = original(checkpoint, "flow")
    hostile = {"." * 10**6: torch.ones(1), "lora_" * 10**5: torch.ones(1)}
    torch.save({"state_dict": expected, "hostile": hostile, "deep": deep}, checkpoint / "flow.pt")
    assert_equal(load(checkpoint, "flow"), expected)


@pytest.mark.parametrize("runtime", ["torch", "onnx"])
def test_a_trained_checkpoint_speaks_as_its_plain_one(checkpoint: Path, tmp_path: Path, runtime: str) -> None:
    """With either runtime; what ONNX Runtime runs was written from the trained files."""

    def spoken(exported: str) -> np.ndarray:
        synthesizer = Synthesizer.from_checkpoint(
            checkpoint, ode_steps=2, runtime=runtime, exported=tmp_path / exported
        )
        voice = synthesizer.voice(Audio(np.sin(np.arange(16_000) / 20).astype(np.float32), 16_000), "One.")
        request = SpeechRequest("One.", voice, seed=1, sampling=SamplingOptions(max_tokens=10))
        return np.concatenate([chunk.samples for chunk in synthesizer.synthesize(request)])

    plain = spoken("plain")
    for part in PARTS:
        torch.save(with_optimizer(original(checkpoint, part)), checkpoint / f"{part}.pt")
    assert np.array_equal(spoken("trained"), plain)


def test_conversions_for_other_programs_read_trained_files(checkpoint: Path) -> None:
    expected = original(checkpoint, "llm")
    torch.save(deepspeed(expected), checkpoint / "llm.pt")
    assert_equal(Source.open(checkpoint).tensors(), expected)
