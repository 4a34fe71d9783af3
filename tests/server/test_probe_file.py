from __future__ import annotations

import json

import numpy as np

from cosyvoice_runtime.supervisor import Probe


def read(tmp_path, **inputs):
    path = tmp_path / "model" / "probe.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"inputs": inputs}))
    return Probe.read(path)


def test_list_is_laid_out_row_by_row(tmp_path):
    probe = read(tmp_path, X={"datatype": "INT32", "shape": [2, 2], "data": [1, 2, 3, 4]})
    np.testing.assert_array_equal(probe.inputs["X"], np.array([[1, 2], [3, 4]], np.int32))
    assert probe.model == "model"


def test_single_value_fills_the_shape(tmp_path):
    wave = read(tmp_path, WAV={"datatype": "FP32", "shape": [1, 16000], "data": 0.25}).inputs["WAV"]
    assert wave.dtype == np.float32
    assert wave.shape == (1, 16000)
    assert (wave == 0.25).all()


def test_list_is_repeated_until_the_shape_is_full(tmp_path):
    wave = read(tmp_path, WAV={"datatype": "FP32", "shape": [1, 5], "data": [0.5, -0.5]}).inputs["WAV"]
    assert wave.tolist() == [[0.5, -0.5, 0.5, -0.5, 0.5]]


def test_text_is_sent_as_utf8(tmp_path):
    probe = read(tmp_path, TEXT={"datatype": "BYTES", "shape": [1, 1], "data": ["你好"]})
    assert probe.inputs["TEXT"].tolist() == [["你好".encode()]]
