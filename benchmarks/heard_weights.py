#!/usr/bin/env python3
"""What a recogniser hears of speech whose tokens come from weights in 8 bits, beside weights in float32.

    pip install pocketsphinx
    python benchmarks/heard_weights.py --sentences 200
    python benchmarks/heard_weights.py --sentences 289 --seeds 20 --processes 16 --json heard.json

The speech LM is engine onnx's; flow and vocoder are PyTorch's, the same for both. Held-out sentences of the
demo voice are spoken by its named voices, each with its own seed. Draws part after some tokens, and from
there on the two are independent readings of the sentence: differences of single sentences are chance, and
only their mean over many says something. It comes with its standard error.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cosyvoice_runtime.audio.resample import resample
from cosyvoice_runtime.lm import Prompt, RunningBatch, SamplingOptions
from cosyvoice_runtime.lm.generation import TokenLimits
from cosyvoice_runtime.lm.host_steps import HostSteps
from cosyvoice_runtime.lm.prompt import num_positions
from cosyvoice_runtime.onnx_cpu.lm import OnnxCachedLM, OnnxKVCache, OnnxSpeechLM
from cosyvoice_runtime.onnx_cpu.lm_export import export_lm
from cosyvoice_runtime.onnx_cpu.lm_files import WEIGHT_FORMATS, LmFiles
from cosyvoice_runtime.pipeline import SpeechRequest, Synthesizer
from cosyvoice_runtime.pipeline.request import lm_prompts
from measuring.heard import RATE, Recogniser, distance, words
from measuring.paired import Row, Task, compared, measured, parser, tasks, tell


class Listener:
    """A checkpoint with both formats of its speech LM, and a recogniser."""

    def __init__(self, checkpoint: Path, files: Path, ode_steps: int) -> None:
        torch.set_num_threads(1)
        self._synthesizer = Synthesizer.from_checkpoint(checkpoint, ode_steps=ode_steps)
        self._recognise = Recogniser()
        self._voices = sorted(self._synthesizer.speakers.items())
        config = self._synthesizer.lm.config
        self._lms = {name: OnnxSpeechLM(config, LmFiles(files / name), 1) for name in WEIGHT_FORMATS}

    def row(self, task: Task) -> Row:
        """Wrong words of each format, and how many there are."""
        seed, text = task
        name, voice = self._voices[seed % len(self._voices)]
        [prompt] = lm_prompts(
            SpeechRequest(text, voice), self._synthesizer.front_end, self._synthesizer.tokenizer
        )
        tokens = {key: spoken(lm, prompt, SamplingOptions(seed=seed)) for key, lm in self._lms.items()}
        heard = {key: self._heard(text, voice, each) for key, each in tokens.items()}
        errors = {key: distance(words(text), each) for key, each in heard.items()}
        lengths = {key: len(each) for key, each in tokens.items()}
        return {"text": text, "voice": name, "words": len(words(text)), "errors": errors, "tokens": lengths}

    def _heard(self, text: str, voice: Any, tokens: Sequence[int]) -> list[str]:
        request = SpeechRequest(text, voice, seed=1, streaming=False)
        chunks = self._synthesizer.synthesize_tokens(tokens, request)
        samples = np.concatenate([chunk.samples for chunk in chunks])
        return self._recognise(torch.from_numpy(resample(samples, self._synthesizer.sample_rate, RATE)))


_listener: Listener | None = None


def begin(checkpoint: Path, files: Path, ode_steps: int) -> None:
    global _listener
    _listener = Listener(checkpoint, files, ode_steps)


def listen(task: Task) -> Row:
    assert _listener is not None
    return _listener.row(task)


def spoken(lm: OnnxSpeechLM, prompt: Prompt, options: SamplingOptions) -> list[int]:
    """Speech tokens of one utterance."""
    positions = num_positions(prompt.parts()) + TokenLimits.of(options, len(prompt.text)).max_tokens
    cache = OnnxKVCache(lm.config, 1, positions)
    batch = RunningBatch(lm.config, cache, HostSteps(OnnxCachedLM(lm, cache), cache, 1, lm.config.fill_id))
    generation = batch.add(prompt, options)
    while generation.finish_reason is None:
        batch.step()
    return generation.tokens


def summary(rows: Sequence[Row]) -> Row:
    """Word error rates, their difference and its standard error."""
    longer = sum(row["tokens"]["int8"] for row in rows) / sum(row["tokens"]["float32"] for row in rows)
    return {**compared(rows, "float32", "int8"), "tokens_of_int8_by_float32": longer}


def main() -> None:
    asked = parser(__doc__ or "")
    asked.add_argument("--first-seed", type=int, default=0)
    asked.add_argument("--ode-steps", type=int, default=10, help="of the flow")
    options = asked.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    todo = tasks(options.script, options.sentences, seeds)
    with tempfile.TemporaryDirectory() as folder:
        for name in WEIGHT_FORMATS:
            export_lm(options.checkpoint, Path(folder) / name, name)
        begun = options.checkpoint, Path(folder), options.ode_steps
        for rows in measured(begin, begun, listen, todo, options.processes):
            tell(summary(rows), rows, options.json)


if __name__ == "__main__":
    main()
