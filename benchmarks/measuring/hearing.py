"""The sound of some answers of a run: words, speaker and seams. It is examined when the load has ended."""

from __future__ import annotations

import argparse
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

import numpy as np

from cosyvoice_client import AudioChunk
from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.language_names import language_tag
from measuring import recognisers
from measuring.figures import Figures
from measuring.front_speech import HttpPart
from measuring.likeness import SpeakerLikeness
from measuring.recognisers import Recognise, recogniser
from measuring.seams import Steps
from measuring.word_errors import LANGUAGES, Language, error_figures, errors, require_words
from measuring.workload import Utterance, WorkloadError


@dataclass
class Recording:
    """An answer: the text that was asked for, and its audio as it came."""

    text: str
    chunks: list[AudioChunk] = field(default_factory=list)

    @property
    def samples(self) -> Floats:
        return np.concatenate([chunk.samples for chunk in self.chunks])

    @property
    def rate(self) -> int:
        return self.chunks[0].sample_rate

    @property
    def joins(self) -> list[int]:
        """The first samples of all chunks but the first. Parts of one chunk of HTTP have no join."""
        ends = np.cumsum([len(chunk.samples) for chunk in self.chunks]).tolist()
        whole = [not isinstance(chunk, HttpPart) or chunk.ends for chunk in self.chunks]
        return sorted({end for end, is_end in zip(ends, whole, strict=True) if is_end} - {0, ends[-1]})


async def kept(chunks: AsyncIterator[AudioChunk], recording: Recording) -> AsyncIterator[AudioChunk]:
    """The same chunks; each is kept after whoever asked for it has noted when it came."""
    async for chunk in chunks:
        yield chunk
        recording.chunks.append(chunk)


def chosen(due: Sequence[float], since_s: float, count: int, seed: int) -> frozenset[float]:
    """At most ``count`` of the times at which measured requests are due, by chance."""
    measured = [due_s for due_s in due if due_s >= since_s]
    return frozenset(random.Random(seed).sample(measured, min(count, len(measured))))


class Hearing:
    """Examines recordings.

    Args:
        recognise: None for no count of words.
        language: of the texts.
        likeness: with the embedding of the voice's reference; None for no comparison.
    """

    def __init__(
        self,
        recognise: Recognise | None = None,
        language: Language = LANGUAGES[0],
        likeness: tuple[SpeakerLikeness, Floats] | None = None,
    ) -> None:
        self._recognise, self._language, self._likeness = recognise, language, likeness

    def figures(self, recordings: Sequence[Recording]) -> Figures | None:
        """Figures of what was asked for; None without recordings."""
        if not recordings:
            return None
        steps = Steps()
        for each in recordings:
            steps.add(each.samples, each.joins, each.rate)
        figures: Figures = {"answers": len(recordings), "seams": steps.figures()}
        if self._recognise:
            heard = [self._recognise(each.samples, each.rate) for each in recordings]
            counted = [
                errors(each.text, text, self._language) for each, text in zip(recordings, heard, strict=True)
            ]
            figures["word_errors"] = error_figures(counted)
        if self._likeness:
            speakers, reference = self._likeness
            cosines = [float(speakers.embedding(each.samples, each.rate) @ reference) for each in recordings]
            figures["likeness"] = {"mean": round(mean(cosines), 4), "lowest": round(min(cosines), 4)}
        return figures


def add_hearing(parser: argparse.ArgumentParser) -> None:
    """Options of what is heard."""
    group = parser.add_argument_group("what answers sound like, found out after each run")
    told = "answers of each run whose sound is kept, about 0.5 MB each (%(default)s)"
    group.add_argument("--hear", type=int, default=0, metavar="N", help=told)
    group.add_argument("--recogniser", metavar="MODULE:CLASS", help=recognisers.HELP)
    group.add_argument("--embedder", type=Path, metavar="FILE", help="campplus.onnx of a checkpoint")
    group.add_argument("--reference", type=Path, metavar="FILE", help="a recording of --voice")


def check_hearing(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse options that say nothing together."""
    if options.hear < 0:
        parser.error("--hear must be 0 or more")
    if not options.hear and (options.recogniser or options.embedder or options.reference):
        parser.error("--recogniser, --embedder and --reference need --hear N")
    if bool(options.embedder) != bool(options.reference):
        parser.error("--embedder and --reference go together")


def hearing_of(options: argparse.Namespace, texts: Sequence[Utterance]) -> Hearing:
    """Make what the options ask for.

    Raises:
        WorkloadError: a recogniser or an embedder can't be had, or words of the language or of a text can't
            be counted.
        ClientError: the reference can't be read.
    """
    recognise, language = None, LANGUAGES[0]
    if options.recogniser:
        recognise, language = recogniser(options.recogniser), language_of(options.language)
        require_words(texts, language)
    likeness = None
    if options.embedder:
        speakers = SpeakerLikeness(options.embedder)
        likeness = speakers, speakers.of_file(options.reference)
    return Hearing(recognise, language, likeness)


def language_of(name: str) -> Language:
    """The language in whose words or characters errors are counted.

    Raises:
        WorkloadError: seed-tts-eval has no such language.
    """
    try:
        tag = language_tag(name)
    except InvalidInput as error:
        raise WorkloadError(f"language: {error}") from error
    for language in LANGUAGES:
        if tag == language:
            return language
    raise WorkloadError(f"language {name}: word errors are counted in English and in Chinese alone")
