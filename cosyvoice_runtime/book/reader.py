"""A book spoken passage by passage, by the library or by a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from cosyvoice_client.pcm import pcm16
from cosyvoice_client.words import TimedWord
from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.book.chapters import Passage, keys_of
from cosyvoice_runtime.book.parts import BookParts, Part
from cosyvoice_runtime.book.progress import BookProgress
from cosyvoice_runtime.engine.utterance.request import derived_seed
from cosyvoice_runtime.errors import StageError, StorageError


class Stretch(NamedTuple):
    """Speech of a passage.

    Attributes:
        samples: ``[n]``.
        sample_rate: per second.
        words: that are over by its end; seconds count from the passage's first sample.
        words_by: how they are timed, ``attention`` or ``estimate``; empty where nothing is told.
    """

    samples: Floats
    sample_rate: int
    words: Sequence[TimedWord]
    words_by: str


class SpeechSource(Protocol):
    """Speaks texts: the library does, and a client of a server."""

    def speak(self, text: str, seed: int) -> Iterator[Stretch]:
        """Speak a text; the same text with the same seed gives the same samples."""


def speak_book(
    passages: Sequence[Passage], parts: BookParts, source: SpeechSource, progress: BookProgress
) -> list[Part]:
    """Speak what is missing of a book, and return what is known of all its parts.

    Each passage has a seed of its own, by its text, so that a book that was interrupted, or of which a part
    has changed, sounds as one that is spoken in one go.

    Raises:
        StorageError: the parts are those of another book, or have several sample rates.
    """
    keys = keys_of(passages)
    parts.refuse_others(keys)
    kept = [parts.read(key) for key in keys]
    for passage, part in zip(passages, kept, strict=True):
        if part is not None:
            progress.keep(passage)
    for index, (passage, part) in enumerate(zip(passages, kept, strict=True)):
        if part is None:
            progress.begin(passage)
            kept[index] = _spoken(keys[index], passage, parts, source, progress)
            progress.end(passage)
    whole = [part for part in kept if part is not None]
    if len(rates := {part.sample_rate for part in whole}) > 1:
        told = ", ".join(map(str, sorted(rates)))
        raise StorageError(f"{parts.directory}: its parts have several sample rates ({told}); --restart")
    return whole


def _spoken(
    key: str, passage: Passage, parts: BookParts, source: SpeechSource, progress: BookProgress
) -> Part:
    stretches = []
    for stretch in source.speak(passage.text, derived_seed(parts.seed, key, 0)):
        stretches.append(stretch)
        progress.hear(len(stretch.samples) / stretch.sample_rate)
    if not sum(len(stretch.samples) for stretch in stretches):
        raise StageError(f"no audio came for {passage.text!r}", "INTERNAL")
    words = [word for stretch in stretches for word in stretch.words]
    words_by = max(stretch.words_by for stretch in stretches)  # An estimate of some words is one of all.
    samples = pcm16(np.concatenate([stretch.samples for stretch in stretches]))
    return parts.write(key, samples, stretches[0].sample_rate, words, words_by)
