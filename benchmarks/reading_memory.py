#!/usr/bin/env python3
"""Memory of cosyvoice2's process after a start, and after it has read texts in ten languages, by checkout.

    python benchmarks/reading_memory.py before:../old after:. --rounds 3

Each checkout serves the demo voice in turn, started anew each round. Its 200 texts are the first ones of
each file of cases, in their own language; each is asked for until its first audio, after which all of it has
been read. Shown are medians of the rounds. PSS, as in cpu.py: a share of what several processes map.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from before_after import Side
from cosyvoice_client import SpeechClient, SpeechRequest
from cosyvoice_client.errors import ClientError
from cpu import PLACES, SETTLE_S
from measuring.machine import ROOT, commit_of, provenance
from measuring.own_server import OwnServer
from measuring.report import table
from measuring.server_processes import cpu_seconds, descendants, memory_by_process

CASES = ROOT / "tests" / "text" / "cases"
LANGUAGES = ("de", "en", "es", "fr", "it", "ja", "ko", "pt", "ru", "zh")
MODEL = "cosyvoice2"
Figures = dict[str, float]


def main() -> None:
    options = parse()
    found: dict[str, list[Figures]] = {side.name: [] for side in options.sides}
    with tempfile.TemporaryDirectory(prefix="reading-memory-") as scratch:
        sides = [replace(side, settings=(*PLACES, *side.settings)) for side in options.sides]
        folders = {side: Path(scratch) / side.name for side in sides}
        made = {side: side.prepare(ROOT / "demo_voice", folder) for side, folder in folders.items()}
        for _ in range(options.rounds):
            for side in sides:
                with OwnServer(made[side], folders[side], side.checkout) as server:
                    found[side.name].append(figures(server, options.texts // len(LANGUAGES)))
                print(side.name, found[side.name][-1], flush=True)
    report = {
        "benchmark": "reading_memory",
        **provenance(),
        "commits": {side.name: commit_of(side.checkout) for side in options.sides},
        "rounds": found,
    }
    options.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    names = list(next(iter(found.values()))[0])
    rows = [
        [name, *(f"{median(one[name] for one in each):.2f}" for each in found.values())] for name in names
    ]
    print(table(("", *found), rows))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sides", type=Side.read, nargs="+", metavar="NAME:CHECKOUT[:KEY=VALUE,...]")
    parser.add_argument("--rounds", type=int, default=3, help="of each checkout (%(default)s)")
    parser.add_argument("--texts", type=int, default=200, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/reading_memory.json"))
    return parser.parse_args()


def figures(server: OwnServer, texts: int) -> Figures:
    """Of one start: seconds of the server and of the process, MiB after it and after the texts."""
    started = held(server)
    [computed] = [cpu_seconds(each) for each in descendants(server.process.pid) if each.model == MODEL]
    refused = 0
    client = SpeechClient(server.url)
    for language in LANGUAGES:
        for text in written(language)[:texts]:
            try:
                for chunk in client.speak(SpeechRequest(text, language=language)):
                    if len(chunk.samples):
                        break
            except ClientError:
                refused += 1
    memory = {"MiB started": started, "MiB read": held(server)}
    return {"start s": server.start_s, "start CPU s": computed, **memory, "refused": refused}


def held(server: OwnServer) -> float:
    """PSS of the model's process once it is quiet."""
    time.sleep(SETTLE_S)
    return memory_by_process(server.process.pid)[MODEL]["pss"]


def written(language: str) -> list[str]:
    """Written forms of a language's own cases."""
    lines = (CASES / f"own_{language}.tsv").read_text(encoding="utf-8").splitlines()
    return [line.split("\t")[2] for line in lines if line and not line.startswith("#")]


if __name__ == "__main__":
    main()
