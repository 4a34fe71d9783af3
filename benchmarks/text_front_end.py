"""What normalisation costs: to begin in each language, per sentence, and what the two caches save.

    python benchmarks/text_front_end.py [--repeats 20]

Each language begins in a process of its own. ``first`` is a sentence never heard before, ``expressions`` one
whose dates and numbers stood in another sentence, ``repeated`` one that was heard before.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from cosyvoice_runtime.text import TextFrontEnd
from cosyvoice_runtime.text.polyphones import in_units

SENTENCES = {
    "zh": "会议在2024年5月{n}日10:30开始，票价{n}.50元，请拨打13812345678。",
    "ja": "会議は5月{n}日10:30から、料金は{n},500円です。",
    "en": "We meet on May {n}, 2023 at 10:30 a.m., and it costs ${n}.50.",
    "zh without numbers": "{han}收到好友从远方寄来的生日礼物，那份意外的惊喜让我心中充满了甜蜜的快乐。",
    "en without numbers": "{letter} The quick brown fox jumps over the lazy dog, nobody knows how it came.",
}
ROOT = Path(__file__).resolve().parent.parent
BEGIN = {
    "the grammar alone": "from cosyvoice_runtime.text.grammar import Grammar; Grammar('{language}')('3')",
    "wetext's Normalizer": "from wetext import Normalizer; Normalizer(lang='{language}').normalize('3')",
}
PROBE = """
import resource, time
import cosyvoice_runtime.text
pages = int(open('/proc/self/statm').read().split()[1])
started = time.perf_counter()
{begin}
took = time.perf_counter() - started
pages = int(open('/proc/self/statm').read().split()[1]) - pages
print(f'{{took:.2f}} | {{pages * resource.getpagesize() / 2**20:.0f}}')
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=20, help="sentences of each kind (at most 25)")
    repeats = parser.parse_args().repeats
    print("| first number in | by | s | MiB |\n|---|---|---|---|")
    for language in ("zh", "ja", "en"):
        for name, begin in BEGIN.items():
            print(f"| {language} | {name} | {beginning(begin.format(language=language))} |")
    print("\n| sentence | first ms | expressions ms | repeated ms |\n|---|---|---|---|")
    for name, sentence in SENTENCES.items():
        print(f"| {name} | {' | '.join(f'{cost:.3f}' for cost in costs(sentence, repeats))} |")
    text = SENTENCES["zh without numbers"]
    print(f"\nreadings of polyphones: first {spent(in_units, text):.1f} ms,", end=" ")
    print(f"then {median(spent(in_units, text) for _ in range(repeats)):.3f} ms")


class Characters:
    """Counts characters, so that no tokenizer is measured."""

    def count(self, text: str) -> int:
        return len(text)


def beginning(begin: str) -> str:
    """Time and memory of a first expression in a process of its own."""
    command = [sys.executable, "-c", PROBE.format(begin=begin)]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()


def costs(sentence: str, repeats: int) -> tuple[float, float, float]:
    """Milliseconds of a sentence: heard for the first time, with known expressions, and heard before."""
    front_end = TextFrontEnd(Characters())
    front_end.segments(_with(sentence, 0))
    texts = [_with(sentence, number) for number in range(1, repeats + 1)]
    first, expressions, repeated = (
        median(spent(front_end.segments, text) for text in kind)
        for kind in (texts, [f"Oh! {text}" for text in texts], texts)
    )
    return first, expressions, repeated


def _with(sentence: str, number: int) -> str:
    """A sentence that no other number gives."""
    return sentence.format(n=number + 1, han=chr(ord("一") + number), letter=chr(ord("A") + number))


def spent(work: Callable[[str], object], text: str) -> float:
    """Milliseconds."""
    started = time.perf_counter()
    work(text)
    return 1e3 * (time.perf_counter() - started)


if __name__ == "__main__":
    main()
