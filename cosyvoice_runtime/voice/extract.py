"""One extractor over several references, each of which may fail alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np

from cosyvoice_runtime.arrays import Array, Floats
from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.errors import NotFiniteError

logger = logging.getLogger(__name__)

BatchExtractor = Callable[[Sequence[Floats]], list[Array]]
Outcome = Array | Exception


def extract_rows(
    extract: BatchExtractor, references: Sequence[Audio | Exception], stage: str
) -> list[Outcome]:
    """Result of ``extract`` for each reference, or its error; an exception stays what it is.

    All references go in one batch. If that fails, each goes alone, so that only the culprit fails.

    Args:
        stage: the network's name in the error of a reference for which it gives NaN or infinity.
    """
    good = [reference.samples for reference in references if isinstance(reference, Audio)]
    results = iter(_together(extract, good, stage) if good else [])
    return [next(results) if isinstance(reference, Audio) else reference for reference in references]


def _together(extract: BatchExtractor, waveforms: Sequence[Floats], stage: str) -> list[Outcome]:
    try:
        return [_checked(result, stage) for result in extract(waveforms)]
    except Exception as error:
        if len(waveforms) == 1:
            return [error]
        logger.warning("a batch of %d failed, each runs alone", len(waveforms), exc_info=error)
        return [_together(extract, [waveform], stage)[0] for waveform in waveforms]


def _checked(result: Array, stage: str) -> Outcome:
    return result if np.isfinite(result).all() else NotFiniteError(stage)
