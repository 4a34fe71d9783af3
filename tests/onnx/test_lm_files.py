"""The speech LM's files for ONNX Runtime: what they were made from, and what is refused."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cosyvoice_runtime.checkpoint import load_config
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.tensors import load_tensors
from cosyvoice_runtime.errors import CheckpointError, EngineFileError, InvalidInput
from cosyvoice_runtime.lm.onnx.export import FloatArrays, export_lm, write_lm
from cosyvoice_runtime.lm.onnx.files import LmFiles, require_lm
from cosyvoice_runtime.lm.onnx.speech_lm import OnnxSpeechLM
from cosyvoice_runtime.lm.prompt import Table
from cosyvoice_runtime.onnx.session import open_session


@pytest.fixture(scope="module")
def exported(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("exported") / "speech_lm"
    export_lm(tiny_checkpoint, directory, "int8")
    return directory


@pytest.fixture
def copied(exported: Path, directory: Path) -> Path:
    shutil.copytree(exported, directory)
    return directory


def test_current_files_are_used_and_left_alone(tiny_checkpoint, copied):
    before = (copied / "weights.bin").stat().st_mtime_ns
    assert export_lm(tiny_checkpoint, copied, "int8") == []
    assert (copied / "weights.bin").stat().st_mtime_ns == before
    assert require_lm(tiny_checkpoint, copied, "int8") == LmFiles(copied)


def test_same_checkpoint_gives_the_same_bytes(tiny_checkpoint, exported, directory):
    export_lm(tiny_checkpoint, directory, "int8")
    for path in exported.iterdir():
        assert (directory / path.name).read_bytes() == path.read_bytes()


def test_files_in_another_format_are_refused_and_made_anew(tiny_checkpoint, copied):
    with pytest.raises(EngineFileError, match=r"weight_format was .int8. when built, now .float32.*stage 1"):
        require_lm(tiny_checkpoint, copied, "float32")
    [reason] = export_lm(tiny_checkpoint, copied, "float32")
    assert "weight_format was" in reason
    require_lm(tiny_checkpoint, copied, "float32")


def test_files_of_another_checkpoint_are_refused(tiny_checkpoint, copied, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(tiny_checkpoint, other)
    with (other / "cosyvoice2.yaml").open("a") as file:
        file.write("# changed\n")
    (other / "SHA256SUMS").unlink(missing_ok=True)
    with pytest.raises(EngineFileError, match=r"source cosyvoice2\.yaml was"):
        require_lm(other, copied, "int8")


@pytest.mark.parametrize(
    "name",
    [
        "model.onnx",
        "weights.bin",
        "prompt.onnx",
        "prompt.bin",
        "text_embedding.npy",
        "control_embedding.npy",
        "speech_embedding.npy",
    ],
)
@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_damaged_file_is_refused_by_its_name_and_made_anew(tiny_checkpoint, copied, name, damage):
    path = copied / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    if damage != "gone":
        path.write_bytes(content if damage == "changed" else content[: len(content) // 2])
    with pytest.raises(EngineFileError, match=f"{name} is missing or damaged; stage 1 makes it"):
        require_lm(tiny_checkpoint, copied, "int8")
    assert export_lm(tiny_checkpoint, copied, "int8") == [f"{path} is missing or damaged"]
    require_lm(tiny_checkpoint, copied, "int8")


def test_nothing_there_is_told(tiny_checkpoint, directory):
    with pytest.raises(EngineFileError, match=r"manifest\.json is missing: .*stage 1"):
        require_lm(tiny_checkpoint, directory, "int8")


def test_directory_with_other_things_is_left_alone(tiny_checkpoint, directory):
    directory.mkdir()
    (directory / "letter.txt").write_text("mine")
    with pytest.raises(InvalidInput):
        export_lm(tiny_checkpoint, directory, "int8")
    assert (directory / "letter.txt").read_text() == "mine"


def test_unknown_format_is_refused(tiny_checkpoint, directory):
    with pytest.raises(InvalidInput, match="weight_format: 'int3' is not accepted; one of float32, int8"):
        export_lm(tiny_checkpoint, directory, "int3")


def test_heads_that_the_runtime_cannot_rotate_are_refused(tiny_checkpoint, tmp_path):
    model = load_config(tiny_checkpoint)
    tensors = FloatArrays(load_tensors(Layout(tiny_checkpoint), "llm", model))
    config = replace(model.speech_lm, num_heads=8)
    with pytest.raises(CheckpointError, match=r"heads of the speech LM have 8 values; .* a multiple of 16"):
        write_lm(config, tensors, LmFiles(tmp_path), "float32")


def test_what_is_no_graph_and_what_is_no_table_are_refused_by_name(tiny_checkpoint, copied):
    config, files = load_config(tiny_checkpoint).speech_lm, LmFiles(copied)
    with pytest.raises(
        EngineFileError, match=r"text_embedding\.npy: has shape \(1024, 64\), expected \(9, 64\)"
    ):
        OnnxSpeechLM(replace(config, text_vocab_size=9), files, threads=1)
    files.table(Table.TEXT).write_bytes(b"no array")
    with pytest.raises(EngineFileError, match=r"text_embedding\.npy: not readable as an array"):
        OnnxSpeechLM(config, files, threads=1)
    files.model.write_bytes(b"no graph")
    with pytest.raises(EngineFileError, match=r"model\.onnx: not a readable ONNX model"):
        open_session(files.model, threads=1)
    files.model.unlink()
    with pytest.raises(EngineFileError, match=r"model\.onnx is missing"):
        open_session(files.model, threads=1)


def test_embeddings_are_those_of_the_checkpoint(tiny_checkpoint, exported):
    model = load_config(tiny_checkpoint)
    tensors = FloatArrays(load_tensors(Layout(tiny_checkpoint), "llm", model))
    table = np.load(LmFiles(exported).table(Table.TEXT))
    np.testing.assert_array_equal(table, tensors["llm.model.model.embed_tokens.weight"])
