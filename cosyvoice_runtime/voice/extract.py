"""One extractor over several references, each of which may fail alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from torch import Tensor

from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.errors import CosyVoiceError

logger = logging.getLogger(__name__)

BatchExtractor = Callable[[Sequence[Tensor]], list[Tensor]]
Outcome = Tensor | Exception


def extract_rows(extract: BatchExtractor, references: Sequence[Audio | Exception]) -> list[Outcome]:
    """What ``extract`` makes of each reference, or why there is nothing; an exception stays what it is.

    All references go in one batch. If that fails, each goes alone, so that only the culprit fails.
    """
    good = [reference.samples for reference in references if isinstance(reference, Audio)]
    results = iter(_together(extract, good) if good else [])
    return [next(results) if isinstance(reference, Audio) else reference for reference in references]


def _together(extract: BatchExtractor, waveforms: Sequence[Tensor]) -> list[Outcome]:
    try:
        return [_checked(result) for result in extract(waveforms)]
    except Exception as error:
        if len(waveforms) == 1:
            return [error]
        logger.warning("a batch of %d failed, each runs alone", len(waveforms), exc_info=error)
        return [_together(extract, [waveform])[0] for waveform in waveforms]


def _checked(result: Tensor) -> Outcome:
    return result if result.isfinite().all() else CosyVoiceError("NaN or infinity came out of the network")
