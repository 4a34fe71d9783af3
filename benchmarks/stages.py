"""Wall time, real-time factor and memory of each stage of synthesis, on random weights of true shapes.

One utterance: the prompt's speech tokens are given, the speech LM draws as many tokens as asked for,
flow and vocoder turn them into waveform chunk by chunk. Each configuration runs in a process of its
own, so that its peak memory is its own.

    python benchmarks/stages.py --size tiny full --flow incremental recompute
    python benchmarks/stages.py --size full --device cuda --dtype bfloat16 float16
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import torch

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.engine.utterance.hop import HopPolicy
from cosyvoice_runtime.engine.utterance.request import SpeechRequest, Utterance, sound_of
from cosyvoice_runtime.engine.utterance.utterance import Playback, speak
from cosyvoice_runtime.flow.paged_flow import FlowState, PagedFlow
from cosyvoice_runtime.flow.torch.batched_mel import AnyMel
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.stream import FlowStream
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.prompt import num_positions
from cosyvoice_runtime.lm.text_segment import SegmentQueue
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.local.stages import GivenTokens
from cosyvoice_runtime.process.event_loop import EventLoopThread
from cosyvoice_runtime.settings import CosyVoice2Settings
from cosyvoice_runtime.token2wav.token2wav import Token2Wav, WaveState
from cosyvoice_runtime.vocoder.torch import HiFT, HiFTStream
from cosyvoice_runtime.vocoder.windowed_vocoder import WindowedVocoder
from cosyvoice_runtime.voice import Voice
from making.random_tensors import random_tensors
from measuring.sizes import SIZES

TOKEN_RATE = 25
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
TEXT_TOKENS_PER_SECOND = 4


@dataclasses.dataclass(frozen=True)
class Setup:
    """One configuration to measure."""

    size: str
    device: str
    dtype: str
    flow: str
    prompt_seconds: float
    seconds: float
    repeats: int
    threads: int


@dataclasses.dataclass(frozen=True)
class Durations:
    """Seconds spent on one utterance."""

    prefill: float
    lm: float
    flow: float
    vocoder: float
    first_audio: float
    total: float


class Clock:
    """Wall time summed by stage; waits for the device, whose work is asynchronous."""

    def __init__(self, device: str) -> None:
        self._device = device
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def now(self) -> float:
        if self._device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    @contextmanager
    def timing(self, stage: str) -> Iterator[None]:
        """Context whose time is added to the stage's."""
        start = self.now()
        yield
        self.seconds[stage] += self.now() - start


class TimedFlow(FlowStream):
    """A flow stream whose mels are timed."""

    def __init__(self, flow: Flow, num_pages: int, clock: Clock) -> None:
        super().__init__(flow, num_pages)
        self._clock = clock

    def mels(self, states: Sequence[FlowState]) -> list[AnyMel]:
        with self._clock.timing("flow"):
            return super().mels(states)


class TimedToken2Wav(Token2Wav):
    """Flow and vocoder, which are timed together."""

    def __init__(self, flow: PagedFlow, vocoder: WindowedVocoder, clock: Clock) -> None:
        super().__init__(flow, vocoder)
        self._clock = clock

    def advance(self, states: Sequence[WaveState]) -> list[Floats]:
        with self._clock.timing("token2wav"):
            return super().advance(states)


class Pipeline:
    """The three networks and one voice."""

    def __init__(self, setup: Setup) -> None:
        config, device, dtype = SIZES[setup.size], setup.device, DTYPES[setup.dtype]
        self.setup, self.config = setup, config
        self.lm = SpeechLM.from_tensors(
            config.speech_lm, dict(random_tensors("llm", config, 0)), device, dtype
        )
        flow = Flow.from_tensors(config.flow, dict(random_tensors("flow", config, 0)), device, dtype)
        vocoder = HiFT.from_tensors(config.vocoder, dict(random_tensors("hift", config, 0)), device)
        tokens = int(TOKEN_RATE * (setup.prompt_seconds + setup.seconds))
        pages = -(-tokens // config.flow.encoder.chunk_tokens) if setup.flow == "incremental" else 0
        self.clock = Clock(device)
        self.token2wav = TimedToken2Wav(TimedFlow(flow, pages, self.clock), HiFTStream(vocoder), self.clock)
        self.voice = random_voice(config.flow, int(TOKEN_RATE * setup.prompt_seconds))
        self.num_parameters = sum(
            p.numel() for network in (self.lm, flow.network, vocoder) for p in network.parameters()
        )

    def speak(self) -> Durations:
        """Synthesise the utterance once."""
        clock = self.clock
        clock.seconds.clear()
        hop = HopPolicy.of(self.config.flow, CosyVoice2Settings())
        voice = hop.flow_voice(self.voice)
        token_times: list[float] = []
        played = Playback(now=lambda: 0.0)
        segments = SegmentQueue()
        segments.begin(Prompt([]))
        segments.done()
        spoken = speak(
            Utterance.of(SpeechRequest("", self.voice, seed=0), sound_of(voice, 1.0)),
            segments,
            GivenTokens(self._tokens(token_times), self.token2wav, {voice.prompt_key: voice}),
            hop,
            self.token2wav.sample_rate,
            lambda: played.cushion_s,
        )
        first_audio, samples = 0.0, 0
        with closing(EventLoopThread("utterance")) as loop:
            start = clock.now()
            for chunk in loop.iterate(spoken):
                first_audio = first_audio or clock.now() - start
                samples += len(chunk.samples)
                played.sent(len(chunk.samples) / chunk.sample_rate)
            total = clock.now() - start
        assert samples == 960 * len(token_times), "a chunk is missing"
        return Durations(
            prefill=token_times[0],
            lm=sum(token_times),
            flow=clock.seconds["flow"],
            vocoder=clock.seconds["token2wav"] - clock.seconds["flow"],
            first_audio=first_audio,
            total=total,
        )

    def _tokens(self, times: list[float]) -> Iterator[int]:
        count = int(TOKEN_RATE * self.setup.seconds)
        text = range(int(TEXT_TOKENS_PER_SECOND * self.setup.seconds))
        options = SamplingOptions(min_tokens=count, max_tokens=count, runaway_span=0, seed=0)
        prompt = Prompt(text, (), self.voice.speech_tokens.tolist())
        decoder = BatchDecoder(self.lm, slots=1, max_len=num_positions(prompt.segments()) + count)
        generation = decoder.add(prompt, options)
        while generation.finish_reason is None:
            start = self.clock.now()
            progress = decoder.step()
            times.append(self.clock.now() - start)
            for each in progress:
                yield from each.tokens


def random_voice(flow: FlowConfig, tokens: int) -> Voice:
    """A voice of random speech tokens and mel."""
    generator = torch.Generator().manual_seed(0)
    return Voice(
        "0" * 64,
        "",
        torch.randint(flow.token_vocab_size, (tokens,), generator=generator, dtype=torch.int32).numpy(),
        (2 * torch.randn(flow.frames_per_token * tokens, flow.mel_bins, generator=generator) - 6).numpy(),
        torch.randn(flow.speaker_dim, generator=generator).numpy(),
        "random",
    )


def measure(setup: Setup) -> dict[str, Any]:
    """Medians over the repeats, after one utterance to warm up; peak memory of this process."""
    torch.set_num_threads(setup.threads)
    pipeline = Pipeline(setup)
    pipeline.speak()
    runs = [pipeline.speak() for _ in range(setup.repeats)]
    medians = {
        field.name: statistics.median(getattr(run, field.name) for run in runs)
        for field in dataclasses.fields(Durations)
    }
    result = {"setup": dataclasses.asdict(setup), "parameters": pipeline.num_parameters, "seconds": medians}
    result["host_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if setup.device == "cuda":
        result["device_mib"] = torch.cuda.max_memory_allocated() / 2**20
    return result


def machine(device: str) -> str:
    """The machine that the figures were taken on."""
    if device == "cuda":
        return f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    return f"{platform.processor() or platform.machine()}, torch {torch.__version__}"


def table(results: list[dict[str, Any]]) -> str:
    """Markdown table, a row per configuration."""
    lines = [
        "| size | device | dtype | flow | LM prefill ms | LM ms/token | flow s | vocoder s | first audio s "
        "| total s | RTF | peak memory MiB |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        setup, seconds = result["setup"], result["seconds"]
        per_token = (seconds["lm"] - seconds["prefill"]) / (TOKEN_RATE * setup["seconds"] - 1)
        memory = result.get("device_mib", result["host_mib"])
        lines.append(
            f"| {setup['size']} | {setup['device']} | {setup['dtype']} | {setup['flow']} "
            f"| {1000 * seconds['prefill']:.1f} | {1000 * per_token:.2f} | {seconds['flow']:.3f} "
            f"| {seconds['vocoder']:.3f} | {seconds['first_audio']:.3f} | {seconds['total']:.3f} "
            f"| {seconds['total'] / setup['seconds']:.3f} | {memory:.0f} |"
        )
    return "\n".join(lines)


def run_apart(setup: Setup) -> dict[str, Any]:
    """:func:`measure` in a process of its own."""
    command = [sys.executable, __file__, "--one", json.dumps(dataclasses.asdict(setup))]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--size", nargs="+", choices=SIZES, default=["tiny"])
    arguments.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments.add_argument("--dtype", nargs="+", choices=DTYPES, default=["float32"], help="of LM and flow")
    arguments.add_argument("--flow", nargs="+", choices=("incremental", "recompute"), default=["incremental"])
    arguments.add_argument("--prompt-seconds", type=float, default=3.0)
    arguments.add_argument("--seconds", type=float, default=10.0, help="of speech (default %(default)s)")
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--threads", type=int, default=2, help="CPU threads (default %(default)s)")
    arguments.add_argument("--output", type=Path, help="write the results here as JSON")
    arguments.add_argument("--one", help=argparse.SUPPRESS)
    return arguments


def main() -> None:
    options = parser().parse_args()
    if options.one:
        print(json.dumps(measure(Setup(**json.loads(options.one)))))
        return
    results = []
    for size, dtype, flow in itertools.product(options.size, options.dtype, options.flow):
        setup = Setup(
            size, options.device, dtype, flow, options.prompt_seconds, options.seconds,
            options.repeats, options.threads,
        )  # fmt: skip
        print(f"measuring {size} {options.device} {dtype} {flow}", file=sys.stderr)
        results.append(run_apart(setup))
    print(f"{machine(options.device)}; {options.prompt_seconds:g} s prompt, {options.seconds:g} s of speech")
    print(table(results))
    if options.output:
        content = {"machine": machine(options.device), "results": results}
        options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
