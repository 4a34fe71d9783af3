"""The vocoder's decoder at work on one utterance after another, each in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.onnx.session import open_session


class Taken(NamedTuple):
    """What came of a piece.

    Attributes:
        wave: ``[n]``, after the samples of the pieces before.
        kept: for the next piece.
    """

    wave: Floats
    kept: Sequence[Floats]


class CpuDecoder:
    """
    Args:
        path: of :mod:`~cosyvoice_runtime.vocoder.onnx.decoder_graph`'s graph.
        threads: of one operation.

    Attributes:
        start: what is kept before an utterance's first piece.

    Raises:
        EngineFileError: the graph is missing or no readable model.
    """

    def __init__(self, path: Path, threads: int) -> None:
        self._session = open_session(path, threads, own_layouts=True)
        ports = [port for port in self._session.get_inputs() if port.name.startswith("kept.")]
        self._names = [port.name for port in ports]
        self._outputs = ["wave", *(f"keeps.{number}" for number in range(len(ports)))]
        self.start: Sequence[Floats] = tuple(np.zeros(port.shape, np.float32) for port in ports)

    def take(
        self, mel: Floats, source: Floats, kept: Sequence[Floats], starts: bool, ends: bool = False
    ) -> Taken:
        """The samples that the next frames make certain.

        Args:
            mel: ``[bins, T]``; ``source``: ``[hop * T]``.
            starts: they are the utterance's first; ``ends``: its last.
        """
        inputs = {
            "mel": np.ascontiguousarray(mel[None]),
            "source": source[None],
            "starts": np.array([starts], np.int64),
            "ends": np.array([ends], np.int64),
        }
        wave, *keeps = self._session.run(self._outputs, inputs | dict(zip(self._names, kept, strict=True)))
        return Taken(wave[0], keeps)
