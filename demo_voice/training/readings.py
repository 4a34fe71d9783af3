"""What the speech LM reads: texts and the codes of their recordings, which are small enough to keep."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from cosyvoice_runtime.audio.mel import log_mel_spectrogram
from demo_voice.training import speech_tokenizer
from demo_voice.training.data import MAX_SECONDS, RATE, Corpus, Reading, recording
from demo_voice.training.speakers import TRAINING

NUMBERS = {speaker.name: number for number, speaker in enumerate(TRAINING)}
JOB = 16


@dataclass(frozen=True)
class Readings:
    """Utterances of the training speakers.

    Attributes:
        speaker: [U] int16, place in ``TRAINING``.
        texts: what was read.
        count: [U] int64, tokens of each.
        codes: [sum of count] int16, without phases.
    """

    speaker: NDArray[np.int16]
    texts: list[str]
    count: NDArray[np.int64]
    codes: NDArray[np.int16]

    @classmethod
    def of(cls, corpus: Corpus, codes: NDArray[np.int16]) -> Readings:
        """A corpus and its codes."""
        numbers = np.array([NUMBERS[name] for name in corpus.speakers], np.int16)
        return cls(numbers[corpus.speaker], corpus.texts, corpus.count, codes)

    @classmethod
    def joined(cls, parts: Sequence[Readings]) -> Readings:
        """All utterances of several sets."""
        return cls(
            np.concatenate([part.speaker for part in parts]),
            [text for part in parts for text in part.texts],
            np.concatenate([part.count for part in parts]),
            np.concatenate([part.codes for part in parts]),
        )

    @classmethod
    def load(cls, path: Path) -> Readings:
        """What :meth:`save` wrote."""
        with np.load(path) as file:
            texts = file["texts"].tobytes().decode("utf-8").split("\n")
            return cls(file["speaker"], texts, file["count"].astype(np.int64), file["codes"])

    def save(self, path: Path) -> None:
        """About 100 bytes an utterance."""
        texts = np.frombuffer("\n".join(self.texts).encode("utf-8"), np.uint8)
        count = self.count.astype(np.int16)
        np.savez_compressed(path, speaker=self.speaker, texts=texts, count=count, codes=self.codes)

    def __len__(self) -> int:
        return len(self.texts)


def make_readings(script: Sequence[Reading], kept: Path, processes: int, until: float = inf) -> Readings:
    """Let the script be read in a random order, as far as the time (seconds since the epoch) reaches."""
    order = list(script)
    random.Random(0).shuffle(order)
    jobs = [(kept, order[start : start + JOB], until) for start in range(0, len(order), JOB)]
    with multiprocessing.get_context("fork").Pool(processes, initializer=os.nice, initargs=(10,)) as pool:
        parts = [part for part in pool.imap_unordered(_read, jobs) if part is not None]
    return Readings.joined(parts)


@torch.no_grad()
def _read(job: tuple[Path, Sequence[Reading], float]) -> Readings | None:
    kept, script, until = job
    if time.time() > until:
        return None
    torch.set_num_threads(1)
    network = speech_tokenizer.trained(kept, "cpu")
    by_name = {speaker.name: speaker for speaker in TRAINING}
    spoken = []
    for name, text in script:
        samples, _ = recording(by_name[name], text)
        if len(samples) <= MAX_SECONDS * RATE:
            log_mel = torch.from_numpy(log_mel_spectrogram(samples.numpy())).half().float()[None]
            spoken.append((NUMBERS[name], text, network.codes(network.bounded(log_mel))[0].numpy()))
    speaker, texts, codes = zip(*spoken, strict=True)
    return Readings(
        np.array(speaker, np.int16),
        list(texts),
        np.array([len(one) for one in codes]),
        np.concatenate(codes).astype(np.int16),
    )
