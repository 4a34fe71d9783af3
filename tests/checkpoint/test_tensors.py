from __future__ import annotations

import os
import pickle
import re
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from cosyvoice_runtime.checkpoint import Layout, load_config, load_speakers
from cosyvoice_runtime.checkpoint.as_torch import all_as_torch, load_tensors
from cosyvoice_runtime.checkpoint.layout import PARTS, Part
from cosyvoice_runtime.checkpoint.tensors import TEXT_HEAD, TEXT_TABLE
from cosyvoice_runtime.errors import CheckpointError

Tensors = dict[str, torch.Tensor]


class Malice:
    """Creates a file when unpickled."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.proof}",)


def load(directory: Path, part: Part) -> Tensors:
    return load_tensors(Layout(directory), part, load_config(directory))


def saved(directory: Path, part: Part) -> Tensors:
    return torch.load(directory / f"{part}.pt", weights_only=True)


def assert_equal(actual: Tensors, expected: Tensors) -> None:
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


@pytest.mark.parametrize("part", PARTS)
def test_safetensors_twin_gives_the_same_tensors(checkpoint: Path, part: Part) -> None:
    expected = load(checkpoint, part)
    tensors = {name: tensor for name, tensor in saved(checkpoint, part).items() if name != TEXT_HEAD}
    (checkpoint / f"{part}.pt").unlink()
    save_file(tensors, checkpoint / f"{part}.safetensors")
    assert_equal(load(checkpoint, part), expected)


def test_missing_text_head_is_tied_to_the_text_table(checkpoint: Path) -> None:
    tensors = saved(checkpoint, "llm")
    del tensors[TEXT_HEAD]
    torch.save(tensors, checkpoint / "llm.pt")
    loaded = load(checkpoint, "llm")
    assert loaded[TEXT_HEAD] is loaded[TEXT_TABLE]


def test_state_dict_class_is_accepted(checkpoint: Path) -> None:
    expected = OrderedDict(saved(checkpoint, "flow"))
    expected._metadata = OrderedDict({"": {"version": 1}})
    torch.save(expected, checkpoint / "flow.pt")
    assert_equal(load(checkpoint, "flow"), expected)


def test_file_of_an_old_torch_is_refused_with_what_to_do(checkpoint: Path) -> None:
    expected, path = saved(checkpoint, "flow"), checkpoint / "flow.pt"
    torch.save(expected, path, _use_new_zipfile_serialization=False)
    with pytest.raises(
        CheckpointError, match=re.escape(f"{path}: refused: it is of the form before torch 1.6")
    ) as told:
        load(checkpoint, "flow")
    advice = str(told.value).rpartition("torch: ")[2]
    exec(advice, {"torch": torch, "path": path})
    assert_equal(load(checkpoint, "flow"), expected)


def test_old_weight_norm_names_and_trainer_prefix_are_accepted(checkpoint: Path) -> None:
    expected = saved(checkpoint, "hift")
    old = {
        "generator."
        + name.replace("parametrizations.weight.original0", "weight_g").replace(
            "parametrizations.weight.original1", "weight_v"
        ): tensor
        for name, tensor in expected.items()
    }
    assert not old.keys() & expected.keys()
    torch.save(old, checkpoint / "hift.pt")
    assert_equal(load(checkpoint, "hift"), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_stored_dtype_is_kept(checkpoint: Path, dtype: torch.dtype) -> None:
    torch.save(
        {name: tensor.to(dtype) for name, tensor in saved(checkpoint, "hift").items()}, checkpoint / "hift.pt"
    )
    assert {tensor.dtype for tensor in load(checkpoint, "hift").values()} == {dtype}


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("llm", "llm_decoder.bias"),
        ("llm", "speech_embedding.weight"),
        ("flow", "encoder.after_norm.weight"),
        ("hift", "conv_post.bias"),
    ],
)
@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_wrong_tensor_is_named_with_its_file(checkpoint: Path, part: Part, name: str, suffix: str) -> None:
    path = checkpoint / f"{part}.{suffix}"
    good = {key: tensor.clone() for key, tensor in saved(checkpoint, part).items()}
    for change, message in [
        ({name: None}, f"{path}: tensor {name} is missing"),
        ({"stranger": torch.zeros(1)}, f"{path}: tensor stranger is unknown"),
        (
            {name: torch.zeros(3, 5)},
            f"{path}: tensor {name} has shape (3, 5), expected {tuple(good[name].shape)}",
        ),
        ({name: good[name].to(torch.int32)}, f"{path}: tensor {name} has dtype int32"),
    ]:
        changed = {key: tensor for key, tensor in {**good, **change}.items() if tensor is not None}
        torch.save(changed, path) if suffix == "pt" else save_file(changed, path)
        with pytest.raises(CheckpointError, match=re.escape(message)):
            load(checkpoint, part)


def test_number_of_further_problems_is_told(checkpoint: Path) -> None:
    torch.save({"conv_post.bias": torch.zeros(18)}, checkpoint / "hift.pt")
    with pytest.raises(CheckpointError, match=r"hift\.pt: tensor .* is missing \(and \d+ more\)"):
        load(checkpoint, "hift")


@pytest.mark.parametrize("kept", [0.0, 0.02, 0.5, 0.999])
@pytest.mark.parametrize("form", ["zip", "safetensors"])
def test_truncated_file_is_named(checkpoint: Path, form: str, kept: float) -> None:
    tensors = saved(checkpoint, "flow")
    path = checkpoint / ("flow.safetensors" if form == "safetensors" else "flow.pt")
    if form == "safetensors":
        save_file(tensors, path)
    else:
        torch.save(tensors, path)
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data))])
    with pytest.raises(CheckpointError, match=re.escape(f"{path}: truncated or damaged")):
        load(checkpoint, "flow")


@pytest.mark.parametrize("part", PARTS)
def test_something_else_under_the_name_is_named(checkpoint: Path, part: Part) -> None:
    (checkpoint / f"{part}.pt").write_bytes(b"<html>not found</html>")
    with pytest.raises(CheckpointError, match=re.escape(f"{part}.pt: truncated or damaged")):
        load(checkpoint, part)


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ("whole", "refused: it is an object of posix.system, which is not looked up"),
        ("tensor", "refused: tensor encoder_proj.bias is of posix.system, which is not read"),
        ("bare", "refused: it is of the form before torch 1.6"),
        ("pickle", "truncated or damaged"),
    ],
)
def test_malicious_pickle_is_refused_and_nothing_runs(checkpoint: Path, form: str, told: str) -> None:
    proof = checkpoint / "proof"
    content: object = {**saved(checkpoint, "flow"), "encoder_proj.bias": Malice(proof)}
    if form == "whole":
        content = Malice(proof)
    path = checkpoint / "flow.pt"
    if form == "pickle":
        path.write_bytes(pickle.dumps({"extra": Malice(proof)}, protocol=2))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form != "bare")
    with pytest.raises(CheckpointError, match=re.escape(f"{path}: {told}")):
        load(checkpoint, "flow")
    assert not proof.exists()
    pickle.loads(pickle.dumps(Malice(proof)))
    assert proof.exists()


@pytest.mark.parametrize("content", [[1, 2], {"epoch": 3}, {4: torch.zeros(1)}, torch.zeros(3)])
def test_anything_but_tensors_by_name_is_refused(checkpoint: Path, content: object) -> None:
    torch.save(content, checkpoint / "llm.pt")
    with pytest.raises(CheckpointError, match=r"llm\.pt: refused"):
        load(checkpoint, "llm")


def test_registered_speakers_are_tensors_by_name(checkpoint: Path) -> None:
    assert load_speakers(Layout(checkpoint)).keys() == {"default"}
    (checkpoint / "spk2info.pt").unlink()
    assert load_speakers(Layout(checkpoint)) == {}
    embedding = torch.arange(192.0)[None]
    torch.save({"alice": {"embedding": embedding}}, checkpoint / "spk2info.pt")
    speakers = load_speakers(Layout(checkpoint))
    assert speakers.keys() == {"alice"}
    assert_equal(all_as_torch(speakers["alice"]), {"embedding": embedding})


@pytest.mark.parametrize("content", [[1], {"alice": 3}, {"alice": {"embedding": "text"}}])
def test_registered_speakers_of_another_form_are_refused(checkpoint: Path, content: object) -> None:
    torch.save(content, checkpoint / "spk2info.pt")
    with pytest.raises(CheckpointError, match=r"spk2info\.pt: refused"):
        load_speakers(Layout(checkpoint))
