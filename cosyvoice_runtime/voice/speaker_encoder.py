"""16 kHz audio to a speaker embedding, through ``campplus.onnx``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio.fbank import FBANK_BINS, centred_fbank
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.voice.onnx_model import BATCH, ExtractorModel, OnnxModel, Port

INPUT = Port(("tensor(float)",), (BATCH, "frames", FBANK_BINS))
OUTPUT = Port(("tensor(float)",), None)
PROBE_FRAMES = 100


class SpeakerEncoder:
    """Speaker embedding of 16 kHz audio, not normalised.

    Args:
        onnx_path: graph with the input float32 [B, T, 80] and the output float32 [B, D].
        threads: cores for one call.
        engine: built from the graph, to run in its place.

    Attributes:
        dimension: D, found by running the graph once (192 as published).

    Raises:
        CheckpointError: the graph is unreadable or has another interface.
    """

    def __init__(self, onnx_path: str | Path, threads: int = 1, engine: ExtractorModel | None = None) -> None:
        self._path = onnx_path
        self._model = engine or OnnxModel(onnx_path, [INPUT], OUTPUT, threads)
        self.dimension = self._embed(np.zeros((1, PROBE_FRAMES, FBANK_BINS), np.float32)).shape[1]

    def __call__(self, samples: Floats) -> Floats:
        """Embedding of one waveform: [n] float32 at 16 kHz, at least 400 -> [D] float32."""
        return self.batch([samples])[0]

    def batch(self, waveforms: Sequence[Floats]) -> list[Floats]:
        """Embeddings of several waveforms, each as alone."""
        return self._model.map_rows([centred_fbank(samples) for samples in waveforms], self._embed)

    def _embed(self, features: Floats) -> Floats:
        embeddings = self._model.run(features)
        if embeddings.ndim != 2:
            raise CheckpointError(f"{self._path}: output of shape {embeddings.shape}, expected [B, D]")
        return embeddings
