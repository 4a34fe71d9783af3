#!/usr/bin/env python3
"""Memory and speed of ``cosyvoice book`` while it reads a book of any length.

    python benchmarks/book.py --sentences 400
    python benchmarks/book.py --noise-hours 1

The book has held-out sentences of the demo voice, in paragraphs of five and chapters of eight paragraphs. A
row tells of the time at which so many minutes of speech are kept; the last one, of the end. Resident memory
(RSS) is that of the process. With noise in place of speech the book is put together alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from cosyvoice_runtime.book.binding import Imprint, bind
from cosyvoice_runtime.book.chapters import Gap, Passage, keys_of
from cosyvoice_runtime.book.parts import Pcm, open_parts
from cosyvoice_runtime.book.timeline import Pauses, timeline_of
from measuring.machine import ROOT
from measuring.report import table

PARAGRAPH, CHAPTER = 5, 8
"""Sentences of a paragraph, and paragraphs of a chapter."""
MINUTES = (1, 2, 5, 10, 20, 30, 60, 120, 240, 480)
LOOK_S = 1.0
COLUMNS = ("RSS, MiB", "most so far, MiB", "seconds so far")
RATE = 24_000
"""Samples per second of the demo voice."""


def main() -> None:
    options = parse()
    if options.noise_hours:
        put_together(options.noise_hours, options.format)
        return
    with tempfile.TemporaryDirectory(prefix="book-") as folder:
        book = Path(folder) / "book.txt"
        book.write_text(text(options.sentences), encoding="utf-8")
        output = book.with_suffix(".m4b")
        given = [book, "--checkpoint", ROOT / "demo_voice", "-o", output, "--srt", book.with_suffix(".srt")]
        command = [sys.executable, "-m", "cosyvoice_runtime", "book", *map(str, given), "--keep-parts"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "client")])}
        with subprocess.Popen([*command, *options.options], env=environment) as reader:
            rows = list(watched(reader, Path(f"{output}.parts")))
        if reader.returncode:
            sys.exit(reader.returncode)
    print(table(("minutes of speech", *COLUMNS), rows))


def put_together(hours: float, format: str) -> None:
    """Put so many hours of noise together, in passages of a minute, ten to a chapter."""
    noise = (3000 * np.random.default_rng(0).standard_normal(60 * RATE)).astype(np.int16)
    count = round(60 * hours)
    passages = [
        Passage(f"minute {at}", at // 10, Gap.NONE if at % 10 else Gap.CHAPTER) for at in range(count)
    ]
    titles = [f"Chapter {number}" for number in range(1, count // 10 + 2)]
    timeline = timeline_of(passages, [len(noise)] * count, titles, RATE, Pauses())
    imprint, keys, rows = Imprint("Noise", "", timeline.chapters, RATE), keys_of(passages), []
    with (
        tempfile.TemporaryDirectory(prefix="book-") as folder,
        open_parts(Path(folder) / "parts", {}, 1, restart=False) as parts,
    ):
        for key in keys:
            parts.write(key, noise, RATE, [], "estimate")

        def stretches() -> Iterator[Pcm]:
            start_s = time.monotonic()
            for minute, key in enumerate(keys, 1):
                yield parts.sound(key)
                if minute in (*MINUTES, count):
                    rows.append([str(minute), *status(os.getpid()), f"{time.monotonic() - start_s:.0f}"])

        bind(Path(folder) / f"book.{format}", stretches(), imprint)
    print(table(("minutes of noise", *COLUMNS), rows))


def text(count: int) -> str:
    """A book of so many sentences."""
    held_out = json.loads((ROOT / "demo_voice" / "held_out.json").read_text("utf-8"))
    sentences = list(islice(cycle(held_out), count))
    paragraphs = [" ".join(sentences[at : at + PARAGRAPH]) for at in range(0, count, PARAGRAPH)]
    chapters = [paragraphs[at : at + CHAPTER] for at in range(0, len(paragraphs), CHAPTER)]
    return "\n\n".join(
        f"Chapter {number}\n\n" + "\n\n".join(chapter) for number, chapter in enumerate(chapters, 1)
    )


def watched(reader: subprocess.Popen[bytes], parts: Path) -> Iterator[list[str]]:
    """A row for each of some minutes of speech, and one for the end."""
    start_s, waiting, row = time.monotonic(), list(MINUTES), list[str]()
    while reader.poll() is None:
        minutes = sum(map(samples, parts.glob("*-*.json"))) / RATE / 60
        memory = status(reader.pid)
        row = [f"{minutes:.1f}", *memory, f"{time.monotonic() - start_s:.0f}"]
        if memory and minutes >= waiting[0]:
            waiting = [each for each in waiting if each > minutes]
            yield row
        time.sleep(LOOK_S)
    yield row


def samples(about: Path) -> int:
    """The samples of a passage that is kept."""
    return int(json.loads(about.read_text("utf-8"))["samples"])


def status(process: int) -> list[str]:
    """Resident memory of a process, at the time and at its most, in MiB; empty when it has ended."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return [f"{int(fields[name].split()[0]) / 1024:.0f}" for name in ("VmRSS", "VmHWM") if name in fields]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sentences", type=int, default=400, help="of the book (default %(default)s)")
    about = "put so much noise together, in place of reading a book"
    parser.add_argument("--noise-hours", type=float, default=0.0, metavar="H", help=about)
    parser.add_argument("--format", choices=("m4b", "opus", "wav"), default="m4b", help="of the noise")
    parser.add_argument("options", nargs="*", help="further options of cosyvoice book, behind --")
    return parser.parse_args()


if __name__ == "__main__":
    main()
