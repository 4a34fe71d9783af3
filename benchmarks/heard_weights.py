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

from cosyvoice_runtime.lm import Prompt, RunningBatch, SamplingOptions
from cosyvoice_runtime.lm.generation import TokenLimits
from cosyvoice_runtime.lm.host_steps import HostSteps
from cosyvoice_runtime.lm.prompt import num_positions
from cosyvoice_runtime.onnx_cpu.lm import OnnxCachedLM, OnnxKVCache, OnnxSpeechLM
from cosyvoice_runtime.onnx_cpu.lm_export import export_lm
from cosyvoice_runtime.onnx_cpu.lm_files import WEIGHT_FORMATS, LmFiles
from cosyvoice_runtime.pipeline import SpeechRequest
from measuring.paired import Row, Task, compared, measured, parser, tasks, tell
from measuring.reader import Reader, Reading


class WeightListener:
    """A checkpoint with both formats of its speech LM."""

    def __init__(self, checkpoint: Path, files: Path, ode_steps: int) -> None:
        self._reader = Reader(checkpoint, ode_steps)
        config = self._reader.synthesizer.lm.config
        self._lms = {name: OnnxSpeechLM(config, LmFiles(files / name), 1) for name in WEIGHT_FORMATS}

    def row(self, task: Task) -> Row:
        """Wrong words of each format, and how many there are."""
        reading = self._reader.reading(task)
        options = SamplingOptions(seed=reading.seed)
        tokens = {key: spoken(lm, reading.prompt, options) for key, lm in self._lms.items()}
        errors = {key: self._wrong_words(reading, each) for key, each in tokens.items()}
        lengths = {key: len(each) for key, each in tokens.items()}
        return {**reading.row(), "errors": errors, "tokens": lengths}

    def _wrong_words(self, reading: Reading, tokens: Sequence[int]) -> int:
        request = SpeechRequest(reading.text, reading.voice, seed=1, streaming=False)
        return self._reader.wrong_words(reading, self._reader.spoken(tokens, request))


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
        made_of = options.checkpoint, Path(folder), options.ode_steps
        for rows in measured(WeightListener, made_of, todo, options.processes):
            tell(summary(rows), rows, options.json)


if __name__ == "__main__":
    main()
