"""The decoder's graph against the torch module: several batch sizes and lengths, even and ragged."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
import torch.nn.functional as F

from cosyvoice_runtime.tensorrt.graph_files import decoder_graph
from cosyvoice_runtime.vocoder.torch.source import Rows
from module_weights import weights_of
from onnx_network import OnnxNetwork
from small_hift import CAUSAL, CONFIGS, OTHER_CAUSAL, random_mel, small_hift

ANY_CONFIG = {**CONFIGS, "causal": CAUSAL, "other causal": OTHER_CAUSAL}
TOLERANCE = {"float32": 1e-5, "float16": 2e-3}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", ANY_CONFIG)
def test_decoder_equals_torch(name: str, dtype: str, tmp_path: Path) -> None:
    config = ANY_CONFIG[name]
    hift = small_hift(config, torch.float32)
    onnx.save(decoder_graph(weights_of(hift.decoder), config, dtype), tmp_path / "model.onnx")
    compiled = OnnxNetwork(tmp_path / "model.onnx")
    for lengths in ([1], [2], [31], [30, 30], [9, 30, 1, 22]):
        rows = Rows.of(lengths, torch.device("cpu"))
        mel = torch.stack([F.pad(random_mel(n, n, config), (0, rows.width - n), value=9.0) for n in lengths])
        with torch.no_grad():
            source = hift.m_source(hift.f0_predictor(mel.clone(), rows), None, rows)[0]
            expected = hift.decoder(mel.clone(), source.clone(), rows)
        inputs = {"mel": mel, "source": source, "frames": torch.tensor(lengths)}
        wave = compiled.run(inputs)["wave"]
        for row, frames in enumerate(lengths):
            samples = frames * config.hop
            difference = (wave[row, :samples] - expected[row, :samples]).abs().max()
            assert difference <= TOLERANCE[dtype], (lengths, row)
