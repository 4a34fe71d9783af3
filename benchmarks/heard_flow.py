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

import torch

from cosyvoice_runtime.audio.resample import resample
from cosyvoice_runtime.checkpoint import load_config
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.lm.single_utterance import generate_all
from cosyvoice_runtime.onnx_cpu.flow import OnnxFlow, OnnxFlowStream
from cosyvoice_runtime.onnx_cpu.flow_estimator_graph import EstimatorFormats
from cosyvoice_runtime.onnx_cpu.vocoder import OnnxVocoder
from cosyvoice_runtime.onnx_cpu.wave_export import export_wave
from cosyvoice_runtime.onnx_cpu.wave_files import wave_directory
from cosyvoice_runtime.pipeline import SpeechRequest, Synthesizer
from cosyvoice_runtime.pipeline.flow_prompt import flow_prompt
from cosyvoice_runtime.pipeline.request import lm_prompts
from cosyvoice_runtime.wave.solvers import ADAMS_BASHFORTH, EULER
from cosyvoice_runtime.wave.token2wav import Token2Wav
from measuring.heard import RATE, Recogniser, distance, words
from measuring.paired import Row, Task, compared, measured, parser, tasks, tell

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


class Listener:
    """A checkpoint with a flow for each way, and a recogniser.

    Args:
        files: has graphs of each of the formats.
    """

    def __init__(self, checkpoint: Path, files: Path) -> None:
        torch.set_num_threads(1)
        config = load_config(checkpoint)
        self._synthesizer = Synthesizer.from_checkpoint(checkpoint)
        self._recognise = Recogniser()
        self._voices = sorted(self._synthesizer.speakers.items())
        self._ways = {}
        for way in WAYS:
            directory = wave_directory(files / way.formats)
            flow = OnnxFlow(config.flow, directory, way.steps, 1, way.solver)
            vocoder = OnnxVocoder(config.vocoder, directory, 1)
            self._ways[way.name] = Token2Wav(OnnxFlowStream(flow, PAGES), vocoder)

    def row(self, task: Task) -> Row:
        """Wrong words of each way, and how many there are."""
        seed, text = task
        name, voice = self._voices[seed % len(self._voices)]
        [prompt] = lm_prompts(
            SpeechRequest(text, voice), self._synthesizer.front_end, self._synthesizer.tokenizer
        )
        tokens, _ = generate_all(self._synthesizer.lm, prompt, SamplingOptions(seed=seed))
        errors = {}
        for way, token2wav in self._ways.items():
            state = token2wav.open(flow_prompt(voice), noise_seed=1)
            token2wav.push(state, tokens, last=True)
            [wave] = token2wav.advance([state])
            token2wav.close(state)
            heard = self._recognise(torch.from_numpy(resample(wave, token2wav.sample_rate, RATE)))
            errors[way] = distance(words(text), heard)
        return {"text": text, "voice": name, "words": len(words(text)), "errors": errors}


_listener: Listener | None = None


def begin(checkpoint: Path, files: Path) -> None:
    global _listener
    _listener = Listener(checkpoint, files)


def listen(task: Task) -> Row:
    assert _listener is not None
    return _listener.row(task)


def summary(rows: Sequence[Row]) -> Row:
    """Each way beside the published one."""
    return {way.name: compared(rows, PUBLISHED.name, way.name) for way in WAYS[1:]}


def main() -> None:
    options = parser(__doc__ or "").parse_args()
    todo = tasks(options.script, options.sentences, range(options.seeds))
    with tempfile.TemporaryDirectory() as folder:
        for name, formats in FORMATS.items():
            export_wave(options.checkpoint, Path(folder) / name, formats)
        for rows in measured(begin, (options.checkpoint, Path(folder)), listen, todo, options.processes):
            tell(summary(rows), rows, options.json)


if __name__ == "__main__":
    main()
