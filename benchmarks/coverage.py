"""How much wrong speech is found by the speech LM's attention, and how often right speech is called wrong.

The demo voice speaks held-out sentences. Errors are made on purpose in two ways: the speech LM draws speech
of other words and its looks at them count as looks at the right ones (``drawn``), or speech tokens that skip,
repeat, loop, stop or babble are forced upon it while it has the right text (``forced``).

    python benchmarks/coverage.py record rows.npz        (10 minutes on two cores)
    python benchmarks/coverage.py judge rows.npz
    python benchmarks/coverage.py hear                   (needs ``pip install pocketsphinx``)
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from cosyvoice_runtime.alignment.coverage import Coverage, Finding
from cosyvoice_runtime.local import SpeechRequest, Synthesizer
from measuring.heard import distance, words
from measuring.misspoken import FOREIGN, Speaker, Speech, read, write, wrongs
from measuring.recognisers import HELP, recogniser

VOICES = ("slt", "rms", "awb", "kal16")
FEWEST_WORDS = 5
AROUND = 25
"""Rows, one second, by which a finding may lie beside its error."""


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    options.run(options)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("record", help="speak, and keep what each speech token looks at")
    command.add_argument("rows", type=Path)
    command.add_argument("--script", type=Path, default=Path("demo_voice/held_out.json"))
    command.add_argument("--first", type=int, default=150, help="sentence (those before set thresholds)")
    command.add_argument("--sentences", type=int, default=250)
    command.add_argument("--voices", type=int, default=2, help="right readings of each sentence")
    command.add_argument("--wrong", type=int, default=90, help="sentences that are spoken wrongly, too")
    command.set_defaults(run=record)
    command = commands.add_parser("judge", help="count findings")
    command.add_argument("rows", type=Path)
    command.set_defaults(run=judge)
    command = commands.add_parser("hear", help="count word errors with and without segments drawn again")
    command.add_argument("--script", type=Path, default=Path("demo_voice/held_out.json"))
    command.add_argument("--sentences", type=int, default=100)
    command.add_argument("--recogniser", default="measuring.heard:Recogniser", help=HELP)
    command.set_defaults(run=hear)
    for each in commands.choices.values():
        each.add_argument("--checkpoint", type=Path, default=Path("demo_voice"))
    return parser.parse_args()


def record(options: argparse.Namespace) -> None:
    """Speak all sentences; errors have the voice of the sentence's first reading."""
    texts = json.loads(options.script.read_text("utf-8"))
    speaker = Speaker(Synthesizer.from_checkpoint(options.checkpoint))
    numbers = range(options.first, min(options.first + options.sentences, len(texts)))
    turns = range(options.voices)
    right = [
        (number, turn, speaker.laid(texts[number], voice(number + turn)))
        for number in numbers
        for turn in turns
    ]
    prompts = [laid.prompt for *_, laid in right if laid.prompt is not None]
    spoken = speaker.tokens(prompts, [10 * number + turn for number, turn, _ in right])
    speeches = [speaker.speech(laid, tokens) for (*_, laid), tokens in zip(right, spoken, strict=True)]
    first = {
        number: (laid, tokens) for (number, turn, laid), tokens in zip(right, spoken, strict=True) if not turn
    }
    long = [number for number in numbers if len(first[number][0].text.split(" ")) >= FEWEST_WORDS]
    long = long[: options.wrong]
    asked = []
    for number, other in zip(long, long[1:] + long[:1], strict=True):
        laid, tokens = first[number]
        speeches += speaker.forced(laid, tokens, first[other][1], Random(number))
        words, foreign = laid.text.split(" "), first[other][0].text.strip(".?!").split(" ")[:FOREIGN]
        for wrong in wrongs(len(words), Random(number)):
            said = " ".join(words[place] if place >= 0 else foreign[-1 - place] for place in wrong.order)
            asked.append((laid, speaker.laid(said, voice(number)), wrong, 10 * number + 5))
    others = [said.prompt for _, said, *_ in asked if said.prompt is not None]
    drawn = [
        speaker.drawn(laid, said, wrong, said_tokens)
        for (laid, said, wrong, _), said_tokens in zip(
            asked, speaker.tokens(others, [seed for *_, seed in asked]), strict=True
        )
    ]
    speeches += [each for each in drawn if each is not None]
    write(options.rows, speeches)
    print(f"{len(speeches)} utterances, {len(right)} of them right")


def voice(number: int) -> str:
    return VOICES[number % len(VOICES)]


def judge(options: argparse.Namespace) -> None:
    """Print the share of wrong speech that is found, by kind, and what is found in right speech."""
    heads = Synthesizer.from_checkpoint(options.checkpoint).heads
    assert heads is not None
    speeches = read(options.rows)
    start, rows = time.process_time(), sum(len(each.rows) for each in speeches)
    found = [findings(each, heads.rows_per_letter) for each in speeches]
    cost_us = 1e6 * (time.process_time() - start) / rows
    judged = list(zip(speeches, found, strict=True))
    right = [(speech, told) for speech, told in judged if speech.kind == "right"]
    report: dict[str, Any] = {
        "right": {"sentences": len(right), "called wrong": [shown(*each) for each in right if each[1][0]],
                  "called stalled": sum(told[1] for _, told in right)},
        "us a row": round(cost_us, 1),
    }  # fmt: skip
    for made in ("drawn", "forced"):
        kinds = dict.fromkeys(speech.kind for speech in speeches if speech.kind != "right")
        of = {
            kind: [each for each in judged if each[0].made == made and each[0].kind == kind] for kind in kinds
        }
        report[made] = {kind: figures(each) for kind, each in of.items() if each}
        report[made]["all"] = figures([each for some in of.values() for each in some])
    print(json.dumps(report, indent=1, ensure_ascii=False))


def hear(options: argparse.Namespace) -> None:
    """Print word errors of whole answers, and of the same ones with ``verify="retry"``."""
    recognise, synthesizer = recogniser(options.recogniser), Synthesizer.from_checkpoint(options.checkpoint)
    texts = [text for text in json.loads(options.script.read_text("utf-8")) if is_long(text)]
    wrong, redrawn, said = Counter[str](), [], 0
    for number, text in enumerate(texts[: options.sentences]):
        request = SpeechRequest(
            text, synthesizer.speakers[voice(number)], seed=number, streaming=False, verify="retry"
        )
        counts = dict.fromkeys(("report", "retry"), 0)
        answers = {"retry": list(synthesizer.synthesize(request))}
        redraws = sum(chunk.verification.redraws for chunk in answers["retry"] if chunk.verification)
        if redraws:
            answers["report"] = list(synthesizer.synthesize(dataclasses.replace(request, verify="report")))
        for verify, chunks in answers.items():
            samples = np.concatenate([chunk.samples for chunk in chunks])
            counts[verify] = distance(words(text), words(recognise(samples, synthesizer.sample_rate)))
        counts["report"] = counts["report"] if redraws else counts["retry"]
        wrong.update(counts)
        said += len(words(text))
        if redraws:
            redrawn.append({"text": text, "redraws": redraws, **counts})
    rates = {verify: round(wrong[verify] / said, 4) for verify in ("report", "retry")}
    print(json.dumps({"words": said, "word errors": rates, "drawn again": redrawn}, indent=1))


def is_long(text: str) -> bool:
    return len(text.split()) >= FEWEST_WORDS


Told = tuple[list[Finding], bool]


def findings(speech: Speech, rows_per_letter: float) -> Told:
    """Tell what is found at the end, and whether speech had stalled on the way, looked at every five rows."""
    coverage, stalled = Coverage(speech.text, speech.spans, rows_per_letter), False
    for first in range(0, len(speech.rows), 5):
        coverage.push(speech.rows[first : first + 5])
        stalled = stalled or coverage.has_stalled
    return coverage.findings(), stalled


def figures(judged: Sequence[tuple[Speech, Told]]) -> dict[str, Any]:
    def share(count: int) -> float:
        return round(count / len(judged), 3)

    return {
        "utterances": len(judged),
        "found": share(sum(bool(told[0]) for _, told in judged)),
        "at its place": share(sum(is_near(speech, told[0]) for speech, told in judged)),
        "stalled": share(sum(told[1] for _, told in judged)),
        "as": dict(Counter(kind for _, told in judged for kind in {each.kind for each in told[0]})),
    }


def is_near(speech: Speech, found: Sequence[Finding]) -> bool:
    return any(speech.first - AROUND <= each.row <= speech.end + AROUND for each in found)


def shown(speech: Speech, told: Told) -> str:
    return f"{speech.text} " + "; ".join(
        f"{each.kind} {speech.text[each.start : each.end]!r}" for each in told[0]
    )


if __name__ == "__main__":
    main()
