#!/usr/bin/env python3
"""Whether a text with markup is heard as well as the same words plain: 40 pairs, spoken by the demo voice.

    python benchmarks/marked_up.py
    python benchmarks/marked_up.py --seeds 1 2 3 4 5 --voice slt --output marked_up.json

Needs ``pip install pocketsphinx``. Both of a pair are spoken with the same seed and voice, heard by the
recogniser, and compared with the plain words. A pair whose segments hold other words is listed, too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio.resample import resample
from cosyvoice_runtime.local import SpeechRequest, Synthesizer
from cosyvoice_runtime.voice import Voice
from measuring.heard import RATE, Recogniser, distance, words
from measuring.machine import ROOT, provenance
from measuring.report import table

PAIRS = ROOT / "benchmarks" / "marked_up.tsv"
WAYS = ("marked", "plain")
Row = dict[str, Any]

_speak: Callable[..., Row]


def main() -> None:
    options = parse()
    lines = [line for line in PAIRS.read_text("utf-8").splitlines() if not line.startswith("#")]
    with multiprocessing.get_context("spawn").Pool(options.processes, _begin, (options,)) as pool:
        rows = list(pool.imap(_row, lines))
    report = {"benchmark": "marked_up", **provenance(), **summary(rows), "pairs": rows}
    options.output.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(table(("kind", "words", *WAYS), list(by_kind(rows))))
    print(json.dumps({key: report[key] for key in summary(rows)}, indent=1, ensure_ascii=False))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--voice", default="rms", help="of the demo voice's speakers (%(default)s)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/marked_up.json"))
    return parser.parse_args()


def _begin(options: argparse.Namespace) -> None:
    """Load what a process needs once."""
    global _speak
    torch.set_num_threads(1)
    synthesizer, recognise = Synthesizer.from_checkpoint(ROOT / "demo_voice"), Recogniser()
    _speak = partial(pair, synthesizer, recognise, synthesizer.speakers[options.voice], options.seeds)


def _row(line: str) -> Row:
    return _speak(*line.replace("\\n", "\n").split("\t"))


def pair(
    synthesizer: Synthesizer,
    recognise: Recogniser,
    voice: Voice,
    seeds: Sequence[int],
    kind: str,
    *texts: str,
) -> Row:
    """Speak both texts; the row has what is read and heard, and all seeds' errors against the plain words."""
    wanted = words(texts[1])
    row: Row = {"kind": kind, "words": len(wanted) * len(seeds)}
    for way, text in zip(WAYS, texts, strict=True):
        asked = [SpeechRequest(text, voice, language="en", seed=seed) for seed in seeds]
        heard = [words(recognise(speech(synthesizer, request))) for request in asked]
        row[way] = {
            "text": text,
            "segments": synthesizer.front_end.segments(text, "en"),
            "heard": [" ".join(each) for each in heard],
            "errors": sum(distance(wanted, each) for each in heard),
        }
    row["same_words"] = len({tuple(words(" ".join(row[way]["segments"]))) for way in WAYS}) == 1
    print(f"{kind}: {row['marked']['errors']} and {row['plain']['errors']} of {row['words']}", flush=True)
    return row


def speech(synthesizer: Synthesizer, request: SpeechRequest) -> Floats:
    """Samples of all chunks at the recogniser's rate."""
    samples = np.concatenate([chunk.samples for chunk in synthesizer.synthesize(request)])
    return resample(samples, synthesizer.sample_rate, RATE)


def summary(rows: list[Row]) -> Row:
    """Word error rates, and the pairs whose words differ."""
    total = sum(row["words"] for row in rows)
    return {
        "word_errors": {way: round(sum(row[way]["errors"] for row in rows) / total, 4) for way in WAYS},
        "words": total,
        "same_words": sum(row["same_words"] for row in rows),
        "other_words": [[row[way]["segments"] for way in WAYS] for row in rows if not row["same_words"]],
    }


def by_kind(rows: list[Row]) -> Iterator[list[str]]:
    """Words and word errors of each kind."""
    for kind in dict.fromkeys(row["kind"] for row in rows):
        of_kind = [row for row in rows if row["kind"] == kind]
        total = sum(row["words"] for row in of_kind)
        errors = (sum(row[way]["errors"] for row in of_kind) for way in WAYS)
        yield [kind, str(total), *(f"{100 * each / total:.0f} %" for each in errors)]


if __name__ == "__main__":
    main()
