"""How far off word times are on the demo voice: by the speech LM's attention, and by estimate.

The demo voice's teacher, flite, says when it speaks each word. Its times are carried over to the demo voice's
audio by dynamic time warping, and compared with what the library tells while it streams.

    python benchmarks/word_times.py --libraries /usr/lib/x86_64-linux-gnu      (Debian's package libflite1)
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.alignment.words import TimedWord
from cosyvoice_runtime.audio.resample import resample
from cosyvoice_runtime.local import SpeechRequest, Synthesizer
from measuring.flite_words import Flite, Reading

FEWEST_WORDS = 5
RATE = 16_000
WINDOW, HOP, BANDS = 400, 160, 40
"""25 ms, every 10 ms, as bands of the mel scale."""
SEED = 1
Samples = npt.NDArray[np.float32]
Word = tuple[str, float, float]
"""Text, and seconds of its beginning and end."""


def main() -> None:
    options = parse()
    texts = [text for text in json.loads(options.script.read_text("utf-8")) if long(text)]
    texts = texts[options.first : options.first + options.sentences]
    flite = Flite(options.libraries, options.voice)
    synthesizer = Synthesizer.from_checkpoint(options.checkpoint)
    report: dict[str, Any] = {"sentences": len(texts), "voice": options.voice, "seed": SEED}
    for method in ("attention", "estimate"):
        if method == "estimate":
            synthesizer.heads = None
        if synthesizer.word_method == method:
            begins, ends = measured(synthesizer, flite, options.voice, texts)
            report[method] = {"words": len(begins), "beginnings": figures(begins), "ends": figures(ends)}
    print(json.dumps(report, indent=1))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--libraries", type=Path, default=Path("/usr/lib/x86_64-linux-gnu"))
    parser.add_argument("--checkpoint", type=Path, default=Path("demo_voice"))
    parser.add_argument("--script", type=Path, default=Path("demo_voice/held_out.json"))
    parser.add_argument("--voice", default="slt", help="slt, rms, awb or kal16")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--sentences", type=int, default=40)
    return parser.parse_args()


def long(text: str) -> bool:
    return len(text.split()) >= FEWEST_WORDS


def measured(
    synthesizer: Synthesizer, flite: Flite, voice: str, texts: Sequence[str]
) -> tuple[list[float], list[float]]:
    """Seconds by which each word is told to begin and to end too late."""
    begins: list[float] = []
    ends: list[float] = []
    for text in texts:
        told, audio = spoken(synthesizer, voice, text)
        truth = carried_over(flite.read(text), audio, synthesizer.sample_rate)
        for word, (_, start_s, end_s) in zip(told, truth, strict=True):
            begins.append(word.start_s - start_s)
            ends.append(word.end_s - end_s)
    return begins, ends


def spoken(synthesizer: Synthesizer, voice: str, text: str) -> tuple[list[TimedWord], Samples]:
    """Words and audio as they are streamed."""
    request = SpeechRequest(text, synthesizer.speakers[voice], seed=SEED)
    chunks = list(synthesizer.synthesize(request, words=True))
    words = [word for chunk in chunks for word in chunk.words]
    return words, np.concatenate([chunk.samples for chunk in chunks])


def figures(found: Sequence[float]) -> dict[str, int]:
    """Errors in milliseconds."""
    late = 1000 * np.asarray(found)
    return {
        "median": round(float(np.median(abs(late)))),
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
    low = resample(samples, rate, RATE)
    frames = np.lib.stride_tricks.sliding_window_view(np.pad(low, WINDOW // 2), WINDOW)[::HOP]
    power = abs(np.fft.rfft(frames * np.hanning(WINDOW), 512)) ** 2
    mel = np.log(power @ filters().T + 1e-6)
    places = np.arange(BANDS) + 0.5
    cosines = np.cos(np.pi / BANDS * np.outer(np.arange(1, 13), places))
    cepstrum = mel @ cosines.T
    return (cepstrum - cepstrum.mean(0)) / cepstrum.std(0)


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
