#!/usr/bin/env python3
"""What a recogniser hears of speech whose flow takes other steps or multiplies in 8 bits, beside the default.

    pip install pocketsphinx
    python benchmarks/heard_flow.py --sentences 100
    python benchmarks/heard_flow.py --sentences 289 --seeds 4 --processes 16 --json heard.json

Flow and vocoder are on ONNX Runtime. The speech tokens and the noise are the same for all ways, so the
readings of a sentence differ in the mel alone. Held-out sentences of the demo voice are spoken by its named
voices.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cosyvoice_runtime.audio.resample import resample
from cosyvoice_runtime.checkpoint import load_config
from cosyvoice_runtime.onnx_cpu.flow import OnnxFlow, OnnxFlowStream
from cosyvoice_runtime.onnx_cpu.vocoder import OnnxVocoder
from cosyvoice_runtime.onnx_cpu.wave_export import export_wave
from cosyvoice_runtime.onnx_cpu.wave_files import wave_directory
from cosyvoice_runtime.onnx_cpu.wave_graphs import EstimatorFormats
from cosyvoice_runtime.pipeline.flow_prompt import flow_prompt
from cosyvoice_runtime.wave.solvers import ADAMS_BASHFORTH, EULER
from cosyvoice_runtime.wave.token2wav import Token2Wav
from measuring.heard import RATE
from measuring.paired import Row, Task, compared, measured, parser, tasks, tell
from measuring.reader import Reader

PAGES = 64
FORMATS = {"float32": EstimatorFormats(), "int8": EstimatorFormats("int8", "float16")}


class FlowWay(NamedTuple):
    """How the flow is solved."""

    solver: str
    steps: int
    formats: str = "float32"

    @property
    def name(self) -> str:
        return f"{self.solver} {self.steps} {self.formats}"


PUBLISHED = FlowWay(EULER, 10)
WAYS = (
    PUBLISHED,
    FlowWay(EULER, 6),
    *(FlowWay(ADAMS_BASHFORTH, steps) for steps in (7, 6, 5)),
    FlowWay(EULER, 10, "int8"),
    FlowWay(ADAMS_BASHFORTH, 7, "int8"),
)


class FlowListener:
    """A checkpoint with a flow for each way.

    Args:
        files: has graphs of each of the formats.
    """

    def __init__(self, checkpoint: Path, files: Path) -> None:
        config = load_config(checkpoint)
        self._reader = Reader(checkpoint)
        self._ways = {}
        for way in WAYS:
            directory = wave_directory(files / way.formats)
            flow = OnnxFlow(config.flow, directory, way.steps, 1, way.solver)
            vocoder = OnnxVocoder(config.vocoder, directory, 1)
            self._ways[way.name] = Token2Wav(OnnxFlowStream(flow, PAGES), vocoder)

    def row(self, task: Task) -> Row:
        """Wrong words of each way, and how many there are."""
        reading = self._reader.reading(task)
        tokens = self._reader.tokens(reading)
        errors = {}
        for way, token2wav in self._ways.items():
            state = token2wav.open(flow_prompt(reading.voice), noise_seed=1)
            token2wav.push(state, tokens, last=True)
            [wave] = token2wav.advance([state])
            token2wav.close(state)
            samples = resample(wave, token2wav.sample_rate, RATE)
            errors[way] = self._reader.wrong_words(reading, samples)
        return {**reading.row(), "errors": errors}


def summary(rows: Sequence[Row]) -> Row:
    """Each way beside the published one."""
    return {way.name: compared(rows, PUBLISHED.name, way.name) for way in WAYS[1:]}


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    todo = tasks(options.script, options.sentences, range(options.seeds))
    with tempfile.TemporaryDirectory() as folder:
        for name, formats in FORMATS.items():
            export_wave(options.checkpoint, Path(folder) / name, formats)
        for rows in measured(FlowListener, (options.checkpoint, Path(folder)), todo, options.processes):
            tell(summary(rows), rows, options.json)


if __name__ == "__main__":
    main()
