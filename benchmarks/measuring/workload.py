"""Texts to be spoken: manifests, data sets, built-in sentences."""

from __future__ import annotations

import importlib
import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from cosyvoice_client import Reference
from measuring.sentences import SENTENCES

SPLIT_DATASETS = {"zero": "yuekai/CV3-Eval"}
END_OF_PROMPT = "<|endofprompt|>"
DEFAULT_DATASET = "yuekai/seed_tts_cosy2"
"""Where CosyVoice's own benchmarks take a split from: that of the word in its name, else the default."""


class WorkloadError(Exception):
    """The texts can't be read."""


@dataclass(frozen=True, eq=False)
class VoiceReference:
    """Reference audio: a file, or float samples at a rate; and what it says."""

    audio: Path | tuple[Any, int]
    text: str


Voice = TypeVar("Voice", Reference, VoiceReference)


@dataclass(frozen=True, eq=False)
class Utterance:
    """A text and, where given, the reference to speak it like."""

    name: str
    text: str
    reference: VoiceReference | None = None


def add_instruction(parser: Any) -> None:
    """An option for what :func:`instructed` puts before each text."""
    example = f"'You are a helpful assistant.{END_OF_PROMPT}'"
    told = f"stands before each text that has none, for CosyVoice3, such as {example}"
    parser.add_argument("--instruction", default="", metavar="TEXT", help=told)


def instructed(instruction: str, text: str, voice: Voice | None) -> tuple[str, Voice | None]:
    """Put an instruction before a reference's words, or before the text where there are none.

    CosyVoice3 needs one in each prompt. Where there is one, nothing is changed.
    """
    words = "" if voice is None else voice.text
    if not instruction or END_OF_PROMPT in words + text:
        return text, voice
    if voice is None or not voice.text:
        return instruction + text, voice
    return text, replace(voice, text=instruction + words)


def built_in(reference: VoiceReference | None = None) -> list[Utterance]:
    """The built-in sentences, all in the voice of the reference."""
    return [Utterance(name, text, reference) for name, text in SENTENCES.items()]


def read_manifest(path: Path) -> list[Utterance]:
    """Lines ``utt|prompt_text|prompt_wav|text``; relative sound files lie beside the manifest.

    Without a ``prompt_wav`` the server's own voice is used.

    Raises:
        WorkloadError: the file can't be read, is empty, or a line has other fields.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise WorkloadError(f"manifest {path}: {error}") from error
    utterances = [_utterance(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not utterances:
        raise WorkloadError(f"manifest {path}: it holds no lines")
    return _distinct(utterances)


def read_split(split: str) -> list[Utterance]:
    """A split of the Hugging Face data sets that CosyVoice's benchmarks use.

    Raises:
        WorkloadError: the package ``datasets`` is missing, or the data can't be fetched.
    """
    name = next((name for word, name in SPLIT_DATASETS.items() if word in split), DEFAULT_DATASET)
    try:
        rows = importlib.import_module("datasets").load_dataset(name, split=split)
    except ImportError as error:
        raise WorkloadError(f"split {split}: pip install datasets, or give a manifest") from error
    except (OSError, ValueError) as error:
        raise WorkloadError(f"split {split} of {name}: {error}") from error
    return _distinct([_row(row) for row in rows])


def endless(utterances: Sequence[Utterance], seed: int) -> Iterator[Utterance]:
    """All utterances over and over, each round in another order that follows from the seed."""
    chance = random.Random(seed)
    for _ in itertools.count():
        yield from chance.sample(utterances, len(utterances))


def _distinct(utterances: list[Utterance]) -> list[Utterance]:
    """The same; results and files are named after utterances, so names must differ."""
    [(name, count)] = Counter(utterance.name for utterance in utterances).most_common(1)
    if count > 1:
        raise WorkloadError(f"{count} utterances are called {name!r}")
    return utterances


def _utterance(path: Path, number: int, line: str) -> Utterance:
    fields = line.strip().split("|")
    if len(fields) != 4 or not fields[3].strip():
        raise WorkloadError(f"manifest {path}, line {number}: expected utt|prompt_text|prompt_wav|text")
    name, prompt_text, prompt_wav, text = fields
    reference = VoiceReference(path.parent / prompt_wav, prompt_text) if prompt_wav else None
    return Utterance(Path(name).stem, text, reference)


def _row(row: Any) -> Utterance:
    audio = row["prompt_audio"]
    reference = VoiceReference((audio["array"], audio["sampling_rate"]), row["prompt_text"])
    return Utterance(str(row["id"]), row["target_text"], reference)
