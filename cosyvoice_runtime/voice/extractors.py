"""Networks that turn reference audio into a voice."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np

from cosyvoice_runtime.arrays import Array, Floats
from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.errors import InvalidInput, NotFiniteError
from cosyvoice_runtime.text.validate import MAX_PROMPT_CHARACTERS, require_text
from cosyvoice_runtime.voice import Voice, build_voice
from cosyvoice_runtime.voice.digest import file_hash
from cosyvoice_runtime.voice.speaker_encoder import SpeakerEncoder
from cosyvoice_runtime.voice.speech_tokenizer import SpeechTokenizer


def checkpoint_id(layout: Layout) -> str:
    """Hash of the two extractors: voices made by others don't fit the checkpoint."""
    return file_hash(layout.speech_tokenizer, layout.speaker_encoder)


class Extractors:
    """Speech tokenizer and speaker encoder of a checkpoint, on ``threads`` CPU threads each.

    Args:
        published_prompt_rate: read recordings at the rate at which the published code does, right or wrong.

    Raises:
        InvalidInput: fewer than one thread.
    """

    def __init__(self, layout: Layout, threads: int = 1, published_prompt_rate: bool = False) -> None:
        if threads < 1:
            raise InvalidInput("threads", threads, "at least 1")
        self.speech_tokenizer = SpeechTokenizer.of(layout, threads)
        self.speaker_encoder = SpeakerEncoder(layout.speaker_encoder, threads)
        self.checkpoint_id = checkpoint_id(layout)
        self._family = layout.family.with_published_prompts() if published_prompt_rate else layout.family

    def voice(self, audio: Audio, transcript: str) -> Voice:
        """The voice of reference audio and what it says, which may be empty.

        Raises:
            InvalidInput: the audio is no usable reference, or nobody could say the transcript in it.
        """
        if transcript.strip():
            require_text("reference_text", transcript, MAX_PROMPT_CHARACTERS)
        return build_voice(
            audio,
            transcript,
            self.speech_tokenizer,
            self.speaker_encoder,
            self.checkpoint_id,
            self._family,
        )


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
