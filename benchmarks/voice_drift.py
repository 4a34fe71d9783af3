#!/usr/bin/env python3
"""How much a voice changes from one segment of a long text to the next, against changes within segments.

    python benchmarks/voice_drift.py --recogniser measuring.heard:Recogniser

Speaks held-out sentences of the demo voice as one text, in this process and with one thread. Pitch is the
median F0 in semitones, loudness is in LUFS (ITU-R BS.1770-4), rate is peaks of the level a second of speech.
The distance of embeddings is one less the cosine between them, by the checkpoint's campplus.onnx. Each figure
across joins compares the second half of a segment with the first half of the next one, each figure within
segments compares the two halves of one.

A server's speech LM reads each segment behind the reference alone. --contexts before has it read the text and
the tokens of the segment before, too. The demo voice knows rows of up to 640 positions, so its segments are
shorter than a server's (--segment-tokens). Its tokens count each other modulo nine (demo_voice/README.md),
which a reference and a later segment don't: --contexts counted counts them anew.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import resource
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import cycle, islice, pairwise
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # of demo_voice, which is not installed

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.engine.utterance.layout import SegmentLayout, TurnsLayout
from cosyvoice_runtime.engine.utterance.utterance import TokenGroup
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.local import SpeechRequest, Synthesizer
from cosyvoice_runtime.local.stages import LocalStages
from cosyvoice_runtime.text import SplitLimits, TextFrontEnd
from cosyvoice_runtime.text.validate import MAX_TARGET_CHARACTERS
from demo_voice.training.sizes import CODES, PHASES
from measuring import recognisers
from measuring.drift import Drift, Spoken, across_and_within
from measuring.figures import Figures
from measuring.likeness import SpeakerLikeness
from measuring.machine import provenance
from measuring.recognisers import Recognise, recogniser
from measuring.report import table
from measuring.word_errors import error_figures, errors

FEWEST_WORDS = 5


class ContextStages(LocalStages):
    """Stages whose speech LM reads each segment behind the reference and the segment before."""

    counts = False
    """Whether prompts are counted from their beginning, modulo nine."""

    def generate(
        self, prompt: Prompt, sampling: SamplingOptions, *others: Any
    ) -> AsyncGenerator[TokenGroup, None]:
        text, speech = getattr(self, "_before", ([], []))
        tokens = [*prompt.prompt_speech, *speech]
        if self.counts:
            tokens = [id_ % CODES + CODES * (place % PHASES) for place, id_ in enumerate(tokens)]
        behind = dataclasses.replace(prompt, prompt_text=[*prompt.prompt_text, *text], prompt_speech=tokens)
        spoken: list[int] = []
        self._before = prompt.text, spoken
        return _noted(super().generate(behind, sampling, *others), spoken)


class CountedStages(ContextStages):
    """Stages of the same context, whose prompts are counted as the training's were."""

    counts = True


async def _noted(
    groups: AsyncGenerator[TokenGroup, None], tokens: list[int]
) -> AsyncGenerator[TokenGroup, None]:
    """The groups, whose tokens are added to a list."""
    async with aclosing(groups):
        async for group in groups:
            tokens += group.tokens
            yield group


CONTEXTS = {"reference": LocalStages, "before": ContextStages, "counted": CountedStages}
"""Stages by the context that their speech LM reads before a segment."""


class Variant(Synthesizer):
    """A synthesizer with stages of a kind."""

    kind: type[LocalStages] = LocalStages

    def _stages(self, layout: SegmentLayout | TurnsLayout, *_others: Any) -> LocalStages:
        return self.kind(self._open_batch, self.token2wav, layout.voices, self.family.silent_tokens)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parse(arguments)
    torch.set_num_threads(1)
    synthesizer = Variant.from_checkpoint(options.checkpoint)
    assert isinstance(synthesizer, Variant)
    most = options.segment_tokens
    limits = SplitLimits(most, most * 3 // 4, most // 4)
    synthesizer.front_end = TextFrontEnd(synthesizer.tokenizer, limits=limits, family=synthesizer.family)
    drift = Drift(SpeakerLikeness(options.checkpoint / "campplus.onnx"))
    hear = recogniser(options.recogniser) if options.recogniser else None
    text = long_text(options.script, options.sentences)
    rows = []
    for speaker in options.speakers:
        for context in options.contexts:
            synthesizer.kind = CONTEXTS[context]
            request = SpeechRequest(text, synthesizer.speakers[speaker], seed=options.seed)
            row = {"speaker": speaker, "context": context, **measured(synthesizer, request, drift, hear)}
            print(json.dumps(row), file=sys.stderr, flush=True)
            rows.append(row)
    if options.json:
        report = {"benchmark": "voice_drift", **provenance(), "rows": rows}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(drift_table(rows))
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, default=Path("demo_voice"))
    parser.add_argument("--script", type=Path, default=Path("demo_voice/held_out.json"))
    parser.add_argument("--speakers", nargs="+", default=["slt", "rms"])
    parser.add_argument("--sentences", type=int, default=80, help="of the text (default %(default)s)")
    parser.add_argument("--contexts", choices=CONTEXTS, nargs="+", default=["reference"])
    parser.add_argument("--segment-tokens", type=int, default=30, help="most of a segment's text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recogniser", metavar="MODULE:CLASS", help=recognisers.HELP)
    parser.add_argument("--json", type=Path, metavar="FILE", help="gets all figures")
    return parser.parse_args(arguments)


def long_text(script: Path, sentences: int) -> str:
    """So many sentences of some words, one after another, and from the first one again behind the last."""
    known = json.loads(script.read_text("utf-8"))
    chosen = [sentence for sentence in known if len(sentence.split()) >= FEWEST_WORDS]
    text = " ".join(islice(cycle(chosen), sentences))
    if len(text) > MAX_TARGET_CHARACTERS:
        limit = f"{len(text)} characters, at most {MAX_TARGET_CHARACTERS} characters"
        raise SystemExit(f"--sentences {sentences}: {limit}")
    return text


def measured(
    synthesizer: Synthesizer, request: SpeechRequest, drift: Drift, hear: Recognise | None
) -> dict[str, Any]:
    """Speak a text, and measure its segments."""
    began = time.process_time()
    first_s: float | None = None
    segments: dict[int, list[Floats]] = {}
    for chunk in synthesizer.synthesize(request):
        first_s = first_s or time.process_time() - began
        segments.setdefault(chunk.segment, []).append(chunk.samples)
    spent_s = time.process_time() - began
    spoken = [np.concatenate(parts) for _, parts in sorted(segments.items())]
    seconds = sum(map(len, spoken)) / synthesizer.sample_rate
    figures = drift_figures([drift.spoken(samples, synthesizer.sample_rate) for samples in spoken])
    texts = synthesizer.front_end.segments(request.text)
    if hear is not None:
        heard = [hear(samples, synthesizer.sample_rate) for samples in spoken]
        pairs = zip(texts, heard, strict=True)
        figures |= error_figures([errors(text, words, "en") for text, words in pairs])
    return {
        "segments": len(spoken),
        "seconds": round(seconds, 1),
        **figures,
        "first_audio_processor_s": first_s and round(first_s, 3),
        "processor_s_a_second": round(spent_s / seconds, 3),
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def drift_figures(segments: Sequence[Spoken]) -> Figures:
    """Differences across joins and within segments, spreads of all halves, and the pauses at joins."""
    across, within = across_and_within(segments)
    halves = [half for segment in segments for half in segment.halves]
    pauses = [one.behind_s + two.before_s for one, two in pairwise(segments)]
    first = np.mean([half.embedding for half in halves[: len(halves) // 4]], axis=0)
    last = np.mean([half.embedding for half in halves[-(len(halves) // 4) :]], axis=0)
    away = 1 - first @ last / np.linalg.norm(first) / np.linalg.norm(last)
    return {
        "across": across,
        "within": within,
        "spread": {
            name: round(stdev(getattr(half, name) for half in halves), 3)
            for name in ("pitch", "loudness", "rate")
        },
        "first_quarter_from_last": round(float(away), 4),
        "pause_s": round(mean(pauses), 3) if pauses else None,
        "pause_spread_s": round(stdev(pauses), 3) if len(pauses) > 1 else None,
    }


def drift_table(rows: Sequence[dict[str, Any]]) -> str:
    """A line for each speaker and context; standard errors in brackets."""
    names = list(rows[0]["across"])
    shown = ["segments", "seconds", "corpus", "pause_s", "pause_spread_s", "processor_s_a_second"]
    return table(
        ("speaker", "context", *(f"{name}: across; within" for name in names), *shown),
        [
            [
                row["speaker"],
                row["context"],
                *(f"{_shown(row['across'][name])}; {_shown(row['within'][name])}" for name in names),
                *(str(row.get(name, "-")) for name in shown),
            ]
            for row in rows
        ],
    )


def _shown(value: tuple[float, float] | None) -> str:
    return "-" if value is None else "{:.3f} ({:.3f})".format(*value)


if __name__ == "__main__":
    sys.exit(main())
