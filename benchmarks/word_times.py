"""How far off the front's estimate of word times is on the demo voice.

The demo voice's teacher, flite, says when it speaks each word. Its times are carried over to the demo voice's
audio by dynamic time warping, and compared with what the front tells for the same chunks of audio.

    python -m benchmarks.word_times --libraries /usr/lib/x86_64-linux-gnu      (Debian's package libflite1)
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.measuring.flite_words import Flite, Reading
from cosyvoice_client import SAMPLE_RATE
from cosyvoice_front.live.word_times import TimedWord, WordTimes
from cosyvoice_runtime.audio.resample import resample
from cosyvoice_runtime.pipeline import SpeechRequest, Synthesizer

FEWEST_WORDS = 5
RATE = 16_000
WINDOW, HOP, BANDS = 400, 160, 40
"""25 ms, every 10 ms, as bands of the mel scale."""
SEED = 1
Samples = npt.NDArray[np.float32]
Word = tuple[str, float, float]


def main() -> None:
    options = parse()
    texts = [text for text in json.loads(options.script.read_text("utf-8")) if long(text)]
    flite, demo = Flite(options.libraries, options.voice), Demo(options.checkpoint, options.voice)
    teacher: list[float] = []
    spoken: list[float] = []
    for text in texts[: options.sentences]:
        reading = flite.read(text)
        heard = resampled(reading.samples, reading.rate, SAMPLE_RATE)
        teacher += errors(estimate(text, [heard]), reading.words)
        chunks = demo.speak(text)
        truth = carried_over(reading, np.concatenate(chunks), demo.rate)
        spoken += errors(estimate(text, chunks), truth)
    report = {"sentences": options.sentences, "voice": options.voice}
    print(json.dumps({**report, "teacher": figures(teacher), "demo voice": figures(spoken)}, indent=1))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--libraries", type=Path, default=Path("/usr/lib/x86_64-linux-gnu"))
    parser.add_argument("--checkpoint", type=Path, default=Path("demo_voice"))
    parser.add_argument("--script", type=Path, default=Path("demo_voice/held_out.json"))
    parser.add_argument("--voice", default="slt")
    parser.add_argument("--sentences", type=int, default=100)
    return parser.parse_args()


def long(text: str) -> bool:
    return len(text.split()) >= FEWEST_WORDS


class Demo:
    """The demo voice, in this process."""

    def __init__(self, checkpoint: Path, voice: str) -> None:
        self._synthesizer = Synthesizer.from_checkpoint(checkpoint)
        self._voice = self._synthesizer.speakers[voice]
        self.rate = self._synthesizer.sample_rate

    def speak(self, text: str) -> list[Samples]:
        """Chunks as the server would send them."""
        request = SpeechRequest(text, self._voice, seed=SEED)
        return [chunk.samples for chunk in self._synthesizer.synthesize(request)]


def estimate(text: str, chunks: Sequence[Samples]) -> list[TimedWord]:
    """What the front tells of a text that is one segment of these chunks of 24 kHz."""
    times = WordTimes()
    times.add(text)
    times.bar(len(text))
    told = [word for chunk in chunks for word in times.hear(chunk)]
    return told + times.end_segment(len(text))


def errors(told: Sequence[TimedWord], truth: Sequence[Word]) -> list[float]:
    """Seconds by which each word is told to begin too late."""
    return [word.start_s - start_s for word, (_, start_s, _) in zip(told, truth, strict=True)]


def figures(found: Sequence[float]) -> dict[str, Any]:
    """Of the beginnings of words, in milliseconds."""
    late = 1000 * np.asarray(found)
    return {
        "words": len(late),
        "mean error": round(float(abs(late).mean())),
        "median error": round(float(np.median(abs(late)))),
        "95th percentile": round(float(np.percentile(abs(late), 95))),
        "late by": round(float(late.mean())),
    }


def carried_over(reading: Reading, samples: Samples, rate: int) -> list[Word]:
    """The reading's words at the moments at which other audio says the same."""
    path = warp(features(reading.samples, reading.rate), features(samples, rate))
    ours, theirs = (np.asarray(side) * HOP / RATE for side in zip(*path, strict=True))

    def moved(at_s: float) -> float:
        return float(np.interp(at_s, ours, theirs))

    return [(word, moved(start_s), moved(end_s)) for word, start_s, end_s in reading.words]


def features(samples: Samples, rate: int) -> npt.NDArray[np.float64]:
    """Mel cepstrum ``[frames, 12]``, each coefficient with mean 0 and deviation 1."""
    low = resampled(samples, rate, RATE)
    frames = np.lib.stride_tricks.sliding_window_view(np.pad(low, WINDOW // 2), WINDOW)[::HOP]
    power = abs(np.fft.rfft(frames * np.hanning(WINDOW), 512)) ** 2
    mel = np.log(power @ filters().T + 1e-6)
    places = np.arange(BANDS) + 0.5
    cosines = np.cos(np.pi / BANDS * np.outer(np.arange(1, 13), places))
    cepstrum = mel @ cosines.T
    return (cepstrum - cepstrum.mean(0)) / cepstrum.std(0)


def resampled(samples: Samples, rate: int, to: int) -> Samples:
    return resample(samples, rate, to)


def filters() -> npt.NDArray[np.float64]:
    """Triangles on the mel scale ``[bands, 257]``."""
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + RATE / 1400), BANDS + 2) / 2595) - 1)
    bins = np.arange(257) * RATE / 512
    rising = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    return np.clip(np.minimum(rising, falling), 0, None)


def warp(one: npt.NDArray[np.float64], two: npt.NDArray[np.float64]) -> list[tuple[int, int]]:
    """The cheapest path through two sequences of features, as pairs of their indices."""
    cost = np.linalg.norm(one[:, None] - two[None], axis=2)
    rows, columns = cost.shape
    total = np.full((rows + 1, columns + 1), np.inf)
    total[0, 0] = 0
    for row in range(rows):
        for column in range(columns):
            before = min(total[row, column], total[row, column + 1], total[row + 1, column])
            total[row + 1, column + 1] = cost[row, column] + before
    return traced(total)


def traced(total: npt.NDArray[np.float64]) -> list[tuple[int, int]]:
    row, column = (size - 1 for size in total.shape)
    path = []
    while row and column:
        path.append((row - 1, column - 1))
        steps = ((row - 1, column - 1), (row - 1, column), (row, column - 1))
        row, column = min(steps, key=lambda step: total[step])
    return path[::-1]


if __name__ == "__main__":
    main()
