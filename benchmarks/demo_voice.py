"""How well the demo voice speaks: word errors against the teacher's own audio, durations, likeness, speed.

Needs ``pip install pocketsphinx scipy`` and flite and espeak-ng (``SYNTHESIZERS``: where they are unpacked).
Run from the repository's root: ``python -m benchmarks.demo_voice --sentences 25 --speakers slt rms awb``.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.audio.resample import resample
from cosyvoice_runtime.speech_lm import SamplingOptions
from cosyvoice_runtime.synthesis import SpeechRequest, Synthesizer
from cosyvoice_runtime.voice import Voice
from scripts.demo_voice.data import recording
from scripts.demo_voice.sizes import CODES
from scripts.demo_voice.speakers import HELD_OUT, TRAINING

REFERENCE = "He walked slowly to the old house on the hill."
FEWEST_WORDS = 5
DURATION_FACTOR = 1.5


def main() -> None:
    """Print a line for each sentence and a summary as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=Path("demo_voice"))
    parser.add_argument("--script", type=Path, default=Path("demo_voice/held_out.json"))
    parser.add_argument("--speakers", nargs="+", default=["slt", "rms", "awb"])
    parser.add_argument("--sentences", type=int, default=25)
    parser.add_argument("--sampling", choices=("ras", "nucleus", "greedy"), default="ras")
    options = parser.parse_args()
    torch.set_num_threads(1)
    synthesizer = Synthesizer.from_checkpoint(options.checkpoint)
    texts = [
        text for text in json.loads(options.script.read_text("utf-8")) if len(text.split()) >= FEWEST_WORDS
    ]
    trial = Trial(synthesizer, SamplingOptions(strategy=options.sampling))
    for name in options.speakers:
        for text in texts[: options.sentences]:
            trial.speak(name, text)
    print(json.dumps(trial.summary(), indent=1))


class Trial:
    """Speaks sentences after a reference recording and counts."""

    def __init__(self, synthesizer: Synthesizer, sampling: SamplingOptions) -> None:
        from pocketsphinx import Decoder

        self.synthesizer = synthesizer
        self.sampling = sampling
        self.recogniser = Decoder(samprate=16_000, loglevel="FATAL")
        self.speakers = {speaker.name: speaker for speaker in (*TRAINING, *HELD_OUT)}
        self.voices: dict[str, Voice] = {}
        self.counts: Counter[str] = Counter()

    def speak(self, name: str, text: str) -> None:
        """One sentence by teacher and product."""
        teacher, _ = recording(self.speakers[name], text)
        began = time.process_time()
        chunks = list(
            self.synthesizer.synthesize(SpeechRequest(text, self.voice(name), seed=1, sampling=self.sampling))
        )
        spent = time.process_time() - began
        product = torch.cat([chunk.samples for chunk in chunks])
        low = resample(product, 24_000, 16_000)
        heard = {"teacher": self.recognise(teacher), "product": self.recognise(low)}
        wanted = words(text)
        ratio = len(low) / len(teacher)
        self.counts.update(
            sentences=1,
            words=len(wanted),
            teacher_errors=distance(wanted, words(heard["teacher"])),
            product_errors=distance(wanted, words(heard["product"])),
            odd_durations=not 1 / DURATION_FACTOR < ratio < DURATION_FACTOR,
            right_speaker=self.nearest(low) == name,
            seconds=len(low) / 16_000,
            processor_seconds=spent,
        )
        print(f"{name}: {text} | {heard['teacher']} | {heard['product']} | x{ratio:.2f}", flush=True)

    def voice(self, name: str) -> Voice:
        """From a recording of a sentence that the training doesn't hold."""
        if name not in self.voices:
            samples, _ = recording(self.speakers[name], REFERENCE)
            self.voices[name] = self.synthesizer.voice(Audio(samples, 16_000), REFERENCE)
        return self.voices[name]

    def nearest(self, samples: Tensor) -> str:
        """The training speaker whose reference is most like the samples, by the speaker encoder."""
        embedding = self.synthesizer.extractors.speaker_encoder(samples)
        return max(
            (speaker.name for speaker in TRAINING),
            key=lambda name: torch.cosine_similarity(
                embedding, self.voice(name).speaker_embedding, dim=0
            ).item(),
        )

    def recognise(self, samples: Tensor) -> str:
        """What pocketsphinx hears in 16 kHz samples, with a little room around them."""
        generator = torch.Generator().manual_seed(0)
        padded = torch.cat([torch.zeros(3200), samples, torch.zeros(3200)])
        padded = padded + 1e-4 * torch.randn(len(padded), generator=generator)
        self.recogniser.start_utt()
        self.recogniser.process_raw((padded.clamp(-1, 1) * 32000).short().numpy().tobytes(), full_utt=True)
        self.recogniser.end_utt()
        heard = self.recogniser.hyp()
        return heard.hypstr if heard else ""

    def summary(self) -> dict[str, float]:
        """Rates over everything spoken."""
        counts = self.counts
        return {
            "sentences": counts["sentences"],
            "word_error_rate_teacher": counts["teacher_errors"] / counts["words"],
            "word_error_rate_product": counts["product_errors"] / counts["words"],
            "odd_durations": counts["odd_durations"] / counts["sentences"],
            "right_speaker": counts["right_speaker"] / counts["sentences"],
            "processor_seconds_per_second": counts["processor_seconds"] / counts["seconds"],
            "codes": CODES,
        }


def words(text: str) -> list[str]:
    """Lower-case words without marks."""
    return re.sub(r"[^a-z' ]", " ", text.lower()).split()


def distance(first: Sequence[str], second: Sequence[str]) -> int:
    """Least number of insertions, deletions and substitutions (Levenshtein)."""
    row = list(range(len(second) + 1))
    for place, left in enumerate(first, 1):
        following = [place]
        for column, right in enumerate(second, 1):
            following.append(min(following[-1] + 1, row[column] + 1, row[column - 1] + (left != right)))
        row = following
    return row[-1]


if __name__ == "__main__":
    main()
