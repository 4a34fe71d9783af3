"""The training corpus: who reads what, the recordings, and every feature that a stage trains on.

All features of an utterance are cut to whole speech tokens (40 ms) and lie in flat arrays, so that token i
of the corpus is samples 960 i to 960 (i + 1), mel frames 2 i to 2 i + 2 and log-mel frames 4 i to 4 i + 4.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from cosyvoice_runtime.audio.mel import fbank, log_mel_spectrogram, mel_spectrogram
from cosyvoice_runtime.audio.resample import resample
from demo_voice.training.f0 import track_f0
from demo_voice.training.sentences import definitions, sentences
from demo_voice.training.speakers import HELD_OUT, RATE, TRAINING, Speaker, speak

PER_TOKEN = {"wave": 960, "mel": 2, "log_mel": 4, "f0": 2, "fbank": 4}
TOKEN_SAMPLES = 640
"""At 16 kHz."""
LOUDNESS = 0.08
"""RMS of every utterance."""
EDGE_SECONDS = (0.10, 0.16)
"""Silence kept before and after the speech."""
MAX_SECONDS = 12.0
UTTERANCES_PER_JOB = 40
HELD_OUT_SENTENCES = 400
VALIDATION_SENTENCES = 200
"""The last of those held out."""

Reading = tuple[str, str]
"""Name of a speaker and the sentence that it reads."""


def write_script(path: Path, utterances: int, more: int, wordnet: Path, seed: int = 0) -> None:
    """Deal sentences to the training speakers by their shares; the same ones are held out for every seed.

    ``training`` is for all stages, ``more`` for the speech LM alone, ``validation`` for its validation.
    """
    held_out = list(islice(sentences(0, wordnet), HELD_OUT_SENTENCES))
    unseen = set(held_out)
    stream = (sentence for sentence in sentences(seed, wordnet) if sentence not in unseen)
    others = (sentence for sentence in definitions(seed, wordnet) if sentence not in unseen)
    script = {
        "seed": seed,
        "training": _dealt(stream, utterances),
        "more": _dealt(chain(others, stream), more),
        "validation": _dealt(iter(held_out[-VALIDATION_SENTENCES:]), VALIDATION_SENTENCES),
        "held_out": held_out,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(script, indent=0), encoding="utf-8")


def _dealt(texts: Iterator[str], utterances: int) -> list[Reading]:
    whole = sum(speaker.share for speaker in TRAINING)
    return [
        (speaker.name, text)
        for speaker in TRAINING
        for text in islice(texts, round(utterances * speaker.share / whole))
    ]


def make_corpus(script: Path, folder: Path, processes: int, every: int = 1) -> None:
    """Synthesize and analyse the script, or each ``every``-th job of it; what is there already is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    jobs = list(_jobs(json.loads(script.read_text(encoding="utf-8"))["training"]))[::every]
    started, done = time.monotonic(), 0
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        for seconds in pool.imap_unordered(_make_job, [(folder, *job) for job in jobs], chunksize=2):
            done += 1
            if done % 50 == 0 or done == len(jobs):
                elapsed = time.monotonic() - started
                print(
                    f"data: {done}/{len(jobs)} jobs, {seconds:.0f} s speech in the last, {elapsed:.0f} s",
                    flush=True,
                )


def _jobs(script: Sequence[Reading]) -> Iterator[tuple[int, list[Reading]]]:
    for number, start in enumerate(range(0, len(script), UTTERANCES_PER_JOB)):
        yield number, [(speaker, text) for speaker, text in script[start : start + UTTERANCES_PER_JOB]]


def _make_job(job: tuple[Path, int, list[Reading]]) -> float:
    folder, number, readings = job
    path = folder / f"{number:05d}.json"
    if path.exists():
        return 0.0
    torch.set_num_threads(1)
    by_name = {speaker.name: speaker for speaker in (*TRAINING, *HELD_OUT)}
    entries: list[dict[str, Any]] = []
    arrays: dict[str, list[NDArray[Any]]] = {name: [] for name in PER_TOKEN}
    for name, text in readings:
        samples, phones = recording(by_name[name], text)
        count = len(samples) // TOKEN_SAMPLES
        if count * TOKEN_SAMPLES <= MAX_SECONDS * RATE:
            entries.append({"speaker": name, "text": text, "phones": phones, "count": count})
            for feature, values in features(samples).items():
                arrays[feature].append(values)
    for feature, parts in arrays.items():
        np.save(folder / f"{number:05d}.{feature}.npy", np.concatenate(parts))
    path.write_text(json.dumps(entries), encoding="utf-8")
    return sum(entry["count"] for entry in entries) / 25


def recording(speaker: Speaker, text: str) -> tuple[Tensor, list[str]]:
    """16 kHz samples of a speaker reading a text, of equal loudness and whole tokens, and the phones."""
    utterance = speak(speaker, text)
    samples = _trimmed(torch.from_numpy(utterance.samples))
    samples = F.pad(samples, (0, -len(samples) % TOKEN_SAMPLES))
    scaled = samples * (LOUDNESS / samples.square().mean().sqrt().clamp(min=1e-4))
    return scaled * min(1.0, 0.98 / scaled.abs().max().item()), utterance.phones


def _trimmed(samples: Tensor) -> Tensor:
    loud = (samples.abs() > 0.02 * samples.abs().max()).nonzero()
    first, last = int(loud[0]), int(loud[-1])
    before, after = (round(seconds * RATE) for seconds in EDGE_SECONDS)
    return samples[max(0, first - before) : last + after]


def features(samples: Tensor) -> dict[str, NDArray[Any]]:
    """Everything the stages train on, of [640 n] samples at 16 kHz, by the names of ``PER_TOKEN``."""
    signal = samples.numpy()
    heard = resample(signal, RATE, 24_000)
    wave, bank = torch.from_numpy(heard), torch.from_numpy(fbank(signal))
    bank = F.pad(bank.T[None], (0, samples.shape[0] // 160 - len(bank)), mode="replicate")[0].T
    return {
        "wave": (wave * 32767).round().short().numpy(),
        "mel": mel_spectrogram(heard).astype(np.float16),
        "log_mel": log_mel_spectrogram(signal).T.astype(np.float16),
        "f0": track_f0(wave).half().numpy(),
        "fbank": bank.half().numpy(),
    }


class Corpus:
    """Utterances in the script's order, sorted by speaker.

    Attributes:
        speakers: names; ``speaker`` [U] counts them.
        start, count: [U] int64, first token and number of tokens of each utterance.
        texts, phones: what was read, as letters and as phones.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs = sorted(path.stem for path in folder.glob("?????.json"))
        entries = [
            entry for job in self.jobs for entry in json.loads((folder / f"{job}.json").read_text("utf-8"))
        ]
        self.speakers = list(dict.fromkeys(entry["speaker"] for entry in entries))
        self.speaker = np.array([self.speakers.index(entry["speaker"]) for entry in entries])
        self.count = np.array([entry["count"] for entry in entries])
        self.start = np.cumsum(self.count) - self.count
        self.texts: list[str] = [entry["text"] for entry in entries]
        self.phones: list[list[str]] = [entry["phones"] for entry in entries]

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def tokens(self) -> int:
        return int(self.count.sum())

    def feature(self, name: str, device: torch.device | str) -> Tensor:
        """A feature of all utterances, end to end."""
        parts = [np.load(self.folder / f"{job}.{name}.npy") for job in self.jobs]
        return torch.from_numpy(np.concatenate(parts)).to(device)

    def speaker_ranges(self) -> Tensor:
        """First token and one past the last token of each speaker: [S, 2]."""
        ranges = []
        for number in range(len(self.speakers)):
            mine = np.flatnonzero(self.speaker == number)
            ranges.append((self.start[mine[0]], self.start[mine[-1]] + self.count[mine[-1]]))
        return torch.tensor(np.array(ranges))


def crops(flat: Tensor, starts: Tensor, tokens: int, per_token: int) -> Tensor:
    """Stretches of equal length out of a flat feature: [B, tokens * per_token, ...]."""
    offsets = torch.arange(tokens * per_token, device=flat.device)
    return flat[starts[:, None].to(flat.device) * per_token + offsets]
