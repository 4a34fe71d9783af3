from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cosyvoice_runtime.tensorrt.engine_files import GraphPorts
from cosyvoice_runtime.tensorrt.extractor_graphs import prepare
from cosyvoice_runtime.voice.extractors import SpeakerEncoder, SpeechTokenizer
from onnx_graphs import write_encoder, write_tokenizer

RECORDINGS = [np.random.default_rng(row).standard_normal(16_000, np.float32) for row in range(3)]


@pytest.mark.parametrize("batch", ["batch", 1])
def test_tokenizer_takes_batches_and_gives_the_same_tokens(tmp_path: Path, batch: int | str) -> None:
    shipped = write_tokenizer(tmp_path / "shipped.onnx", batch=batch)
    assert prepare("speech_tokenizer", shipped, tmp_path / "prepared.onnx")
    inputs = GraphPorts.read(tmp_path / "prepared.onnx").inputs
    assert inputs == {"feats": ("batch", 128, "frames"), "feats_length": ("batch",)}
    before, after = SpeechTokenizer(shipped), SpeechTokenizer(tmp_path / "prepared.onnx")
    for alone, together in zip(map(before, RECORDINGS), after.batch(RECORDINGS), strict=True):
        assert np.array_equal(alone, together)


def test_encoder_takes_batches_and_gives_the_same_embeddings(tmp_path: Path) -> None:
    shipped = write_encoder(tmp_path / "shipped.onnx")
    assert prepare("speaker_encoder", shipped, tmp_path / "prepared.onnx")
    assert GraphPorts.read(tmp_path / "prepared.onnx").inputs == {"input": ("batch", "frames", 80)}
    before, after = SpeakerEncoder(shipped), SpeakerEncoder(tmp_path / "prepared.onnx")
    for alone, together in zip(map(before, RECORDINGS), after.batch(RECORDINGS), strict=True):
        assert np.allclose(alone, together, atol=1e-5)


@pytest.mark.parametrize("mixes_rows", [False, True], ids=["fixed in a constant", "rows mix"])
def test_a_graph_whose_batch_cannot_be_freed_keeps_a_batch_of_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mixes_rows: bool
) -> None:
    shipped = write_stubborn_encoder(tmp_path / "shipped.onnx", mixes_rows)
    assert not prepare("speaker_encoder", shipped, tmp_path / "prepared.onnx")
    assert "its batch is fixed in the graph and stays 1" in caplog.text
    assert GraphPorts.read(tmp_path / "prepared.onnx").inputs == {"input": (1, "frames", 80)}
    before, after = SpeakerEncoder(shipped), SpeakerEncoder(tmp_path / "prepared.onnx")
    assert np.array_equal(before(RECORDINGS[0]), after(RECORDINGS[0]))


def write_stubborn_encoder(path: Path, mixes_rows: bool) -> Path:
    """Pools over the rows as well, or reshapes to one row."""
    axes = numpy_helper.from_array(np.array([0, 1] if mixes_rows else [1]), "axes")
    one_row = numpy_helper.from_array(np.array([1, 80]), "one_row")
    pool = helper.make_node("ReduceMean", ["input", "axes"], ["pooled"], keepdims=int(mixes_rows))
    if mixes_rows:
        last = helper.make_node("Add", ["pooled", "input"], ["shifted"])
        nodes = [pool, last, helper.make_node("ReduceMax", ["shifted", "time"], ["output"], keepdims=0)]
    else:
        nodes = [pool, helper.make_node("Reshape", ["pooled", "one_row"], ["output"])]
    time = numpy_helper.from_array(np.array([1]), "time")
    graph = helper.make_graph(
        nodes,
        "stubborn",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, "T", 80])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 80])],
        [axes, one_row, time],
    )
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)]), path)
    return path
