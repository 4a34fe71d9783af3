#!/usr/bin/env python3
"""A recogniser's words for speech whose tokens come from weights in 8 bits, beside weights in float32.

    pip install pocketsphinx
    python benchmarks/heard_weights.py --sentences 200
    python benchmarks/heard_weights.py --sentences 289 --seeds 20 --processes 16 --json heard.json

The speech LM is engine onnx's; flow and vocoder are PyTorch's, the same for both. Held-out sentences of the
demo voice are spoken by its named voices, each with its own seed. Draws part after some tokens, and from
there on the two are independent readings of the sentence: differences of single sentences are chance, and
only their mean over many says something. It comes with its standard error.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch

from cosyvoice_runtime.audio.resample import resample
from cosyvoice_runtime.engine.utterance.layout import lm_prompts
from cosyvoice_runtime.lm import Prompt, RunningBatch, SamplingOptions
from cosyvoice_runtime.lm.generation import TokenLimits
from cosyvoice_runtime.lm.onnx.export import export_lm
from cosyvoice_runtime.lm.onnx.files import WEIGHT_FORMATS, LmFiles
from cosyvoice_runtime.lm.onnx.speech_lm import OnnxCachedLM, OnnxKVCache, OnnxSpeechLM
from cosyvoice_runtime.lm.prompt import num_positions
from cosyvoice_runtime.lm.running_batch import HostSteps
from cosyvoice_runtime.local import SpeechRequest, Synthesizer
from measuring.heard import RATE, Recogniser, distance, words
from measuring.machine import ROOT, provenance

DEMO_VOICE = ROOT / "demo_voice"
FEWEST_WORDS = 5
Row = dict[str, Any]
Task = tuple[int, str]
"""A seed and a sentence."""


class Listener:
    """A recogniser, and a checkpoint with all formats of its speech LM, whose voices take turns."""

    def __init__(self, checkpoint: Path, files: Path, ode_steps: int) -> None:
        torch.set_num_threads(1)
        self._synthesizer = Synthesizer.from_checkpoint(checkpoint, ode_steps=ode_steps)
        self._voices = sorted(self._synthesizer.speakers.items())
        self._recognise = Recogniser()
        config = self._synthesizer.lm.config
        self._lms = {name: OnnxSpeechLM(config, LmFiles(files / name), 1) for name in WEIGHT_FORMATS}

    def row(self, task: Task) -> Row:
        """The sentence, how many words it has, and of each format wrong words and speech tokens."""
        seed, text = task
        name, voice = self._voices[seed % len(self._voices)]
        request = SpeechRequest(text, voice, seed=1, streaming=False)
        [prompt] = lm_prompts(request, self._synthesizer.front_end, self._synthesizer.tokenizer)
        options = SamplingOptions(seed=seed)
        tokens = {key: spoken(lm, prompt, options) for key, lm in self._lms.items()}
        return {
            "text": text,
            "voice": name,
            "words": len(words(text)),
            "errors": {key: self._wrong_words(request, each) for key, each in tokens.items()},
            "tokens": {key: len(each) for key, each in tokens.items()},
        }

    def _wrong_words(self, request: SpeechRequest, tokens: Sequence[int]) -> int:
        chunks = [chunk.samples for chunk in self._synthesizer.synthesize_tokens(tokens, request)]
        samples = resample(np.concatenate(chunks), self._synthesizer.sample_rate, RATE)
        return distance(words(request.text), words(self._recognise(samples)))


def spoken(lm: OnnxSpeechLM, prompt: Prompt, options: SamplingOptions) -> list[int]:
    """Speech tokens of one utterance."""
    positions = num_positions(prompt.segments()) + TokenLimits.of(options, len(prompt.text)).max_tokens
    cache = OnnxKVCache(lm.config, 1, positions)
    batch = RunningBatch(lm.config, cache, HostSteps(OnnxCachedLM(lm, cache), cache, 1, lm.config.fill_id))
    generation = batch.add(prompt, options)
    while generation.finish_reason is None:
        batch.step()
    return generation.tokens


def summary(rows: Sequence[Row]) -> Row:
    """Word error rates, their difference, its standard error, and how much longer the speech became."""
    formats = ("float32", "int8")
    count = sum(row["words"] for row in rows)
    rates = {key: sum(row["errors"][key] for row in rows) / count for key in formats}
    difference = rates["int8"] - rates["float32"]
    left = [row["errors"]["int8"] - row["errors"]["float32"] - difference * row["words"] for row in rows]
    tokens = {key: sum(row["tokens"][key] for row in rows) for key in formats}
    return {
        "utterances": len(rows),
        "words": count,
        "word_error_rate": rates,
        "difference": difference,
        "standard_error": stdev(left) / len(rows) ** 0.5 / mean(row["words"] for row in rows),
        "tokens_of_int8_by_float32": tokens["int8"] / tokens["float32"],
    }


_listener: Listener | None = None
"""The listener of this process."""


def begin(checkpoint: Path, files: Path, ode_steps: int) -> None:
    """Make the listener of this process."""
    global _listener
    _listener = Listener(checkpoint, files, ode_steps)


def listen(task: Task) -> Row:
    """The row of a task, from the listener of this process."""
    assert _listener is not None
    return _listener.row(task)


def rows_so_far(options: argparse.Namespace, files: Path) -> Iterator[list[Row]]:
    """The rows that have come, after every twenty and at the end."""
    texts = [
        text for text in json.loads(options.script.read_text("utf-8")) if len(text.split()) >= FEWEST_WORDS
    ]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    todo = [
        (seed * len(texts) + n, text) for seed in seeds for n, text in enumerate(texts[: options.sentences])
    ]
    made_of = options.checkpoint, files, options.ode_steps
    rows: list[Row] = []
    with multiprocessing.get_context("spawn").Pool(options.processes, begin, made_of) as pool:
        for row in pool.imap_unordered(listen, todo):
            rows.append(row)
            if len(rows) % 20 == 0 or len(rows) == len(todo):
                yield rows


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, default=DEMO_VOICE)
    parser.add_argument("--script", type=Path, default=DEMO_VOICE / "held_out.json")
    parser.add_argument("--sentences", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=1, help="readings of each sentence")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--ode-steps", type=int, default=10, help="of the flow")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, help="file for the figures and all rows that have come")
    return parser.parse_args()


def main() -> None:
    """Speak, listen, and print the figures as they come."""
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        for name in WEIGHT_FORMATS:
            export_lm(options.checkpoint, Path(folder) / name, name)
        for rows in rows_so_far(options, Path(folder)):
            figures = summary(rows)
            print(json.dumps(figures), flush=True)
            if options.json:
                text = json.dumps({**figures, "rows": rows, **provenance()}, indent=1)
                options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
