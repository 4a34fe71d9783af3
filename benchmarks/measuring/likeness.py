"""How much two recordings sound like one speaker, by a checkpoint's speaker encoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cosyvoice_client.sound_file import decode
from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio.audio import EXTRACTOR_SAMPLE_RATE
from cosyvoice_runtime.audio.resample import resample
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.voice.extractors import SpeakerEncoder
from measuring.workload import WorkloadError

MOST_S = 60.0
"""The longest part of a file that is compared, from its beginning."""
LEAST = 400
"""Samples of one frame of the encoder's features, 25 ms at 16 kHz; what is shorter is filled with silence."""


class SpeakerLikeness:
    """Embeddings of unit length, whose product is the cosine between two of them.

    Args:
        embedder: a speaker encoder such as ``campplus.onnx`` of a checkpoint.

    Raises:
        WorkloadError: there is no such file, or it is no speaker encoder.
    """

    def __init__(self, embedder: Path) -> None:
        try:
            self._encode = SpeakerEncoder(embedder)
        except CheckpointError as error:
            raise WorkloadError(f"embedder {embedder}: {error}") from error

    def embedding(self, samples: Floats, rate: int) -> Floats:
        """The embedding, float32 ``[D]``, of samples ``[n]``."""
        low = resample(samples, rate, EXTRACTOR_SAMPLE_RATE)
        found = self._encode(np.pad(low, (0, max(0, LEAST - len(low)))))
        return found / np.linalg.norm(found)

    def of_file(self, path: Path) -> Floats:
        """The embedding of a sound file; a SoundFileError where it can't be read."""
        sound = decode(path, str(path), MOST_S)
        return self.embedding(sound.samples, sound.rate)
