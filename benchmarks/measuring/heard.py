"""Words that an offline speech recogniser hears, and their distance from the text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from cosyvoice_runtime.arrays import Floats

RATE = 16_000
MARGIN_S = 0.2
"""Silence around what is recognised, with a little noise."""


class Recogniser:
    """pocketsphinx with the English model that it brings."""

    def __init__(self) -> None:
        from pocketsphinx import Decoder

        self._decoder: Any = Decoder(samprate=RATE, loglevel="FATAL")

    def __call__(self, samples: Floats) -> str:
        """The words in 16 kHz samples, float32 ``[n]``; no text where it hears none."""
        padded = np.pad(samples, round(MARGIN_S * RATE))
        padded = padded + 1e-4 * np.random.default_rng(0).standard_normal(len(padded))
        self._decoder.start_utt()
        self._decoder.process_raw((padded.clip(-1, 1) * 32_000).astype(np.int16).tobytes(), full_utt=True)
        self._decoder.end_utt()
        heard = self._decoder.hyp()
        return heard.hypstr if heard else ""


def words(text: str) -> list[str]:
    """Lower-case words without marks."""
    return re.sub(r"[^a-z' ]", " ", text.lower()).split()


def distance(first: Sequence[object], second: Sequence[object]) -> int:
    """Least number of insertions, deletions and substitutions (Levenshtein)."""
    row = list(range(len(second) + 1))
    for place, left in enumerate(first, 1):
        following = [place]
        for column, right in enumerate(second, 1):
            following.append(min(following[-1] + 1, row[column] + 1, row[column - 1] + (left != right)))
        row = following
    return row[-1]
