#!/usr/bin/env python3
"""The speech LM and token2wav as two processes, without a server: where to put them on two GPUs.

    python benchmarks/two_gpus.py --checkpoint checkpoints/CosyVoice2-0.5B --clients 1 16 64 --seconds 6
    python benchmarks/two_gpus.py --checkpoint checkpoints/tiny --gpus cpu cpu --clients 1 4

Schedulers, chunks and their order are those of the server; Triton, gRPC and the text front end are left out.
The speech LM is on the first device. token2wav is tried on it, on the second, on both, and with the flow on
the second and the vocoder on the first. Every client asks again as soon as it has its answer: speech of as
many tokens for everybody, in one voice. One utterance is compared with what the first place says.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import multiprocessing
import sys
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.checkpoint import load_config
from cosyvoice_runtime.lm import FinishReason, Prompt, SamplingOptions
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.pipeline.hop import HopPolicy
from cosyvoice_runtime.pipeline.request import SpeechRequest
from cosyvoice_runtime.pipeline.stages import TokenGroup, WaveSettings
from cosyvoice_runtime.pipeline.utterance import Playback, speak
from cosyvoice_runtime.serving.lm.engine import prepare_engine
from cosyvoice_runtime.serving.lm.request import Request
from cosyvoice_runtime.serving.lm.scheduler import Scheduler
from cosyvoice_runtime.serving.token2wav.load import open_runtime, start_scheduler
from cosyvoice_runtime.serving.token2wav.router import WaveRouter
from cosyvoice_runtime.serving.token2wav.runtime import WaveRuntime
from cosyvoice_runtime.serving.token2wav.usage import WaveMetrics
from cosyvoice_runtime.serving.token2wav.wave_memory import WaveMemory
from cosyvoice_runtime.settings import CosyVoice2Settings, Machine, TensorrtLlmSettings, Token2WavSettings
from cosyvoice_runtime.voice import Voice
from measuring.figures import spread
from measuring.machine import provenance
from measuring.report import table
from measuring.streamed_stages import spoken

PROMPT_TOKENS, TEXT_TOKENS, SPEECH_TOKENS = 62, 20, 100
"""A reference of 2.5 s, a sentence, and 4 s of speech."""
SEED = 1


class Told:
    """A reader in the speech LM's process: tokens go to the other one."""

    cancelled = False

    def __init__(self, name: str, queue: Any) -> None:
        self._name, self._queue = name, queue

    def send(self, tokens: Sequence[int], finish_reason: FinishReason | None) -> None:
        self._queue.put((self._name, list(tokens), finish_reason))

    def finish(self, error: Exception | None) -> None:
        if error is not None:
            self._queue.put((self._name, [], FinishReason.ERROR))


def run_lm(settings: TensorrtLlmSettings, asked: Any, told: Any) -> None:
    """The speech LM's process: requests in, tokens out, until None is asked."""
    scheduler = Scheduler(prepare_engine(settings), settings.max_queue_size, 600.0, lambda _: None)
    told.put(None)
    with closing(scheduler):
        while (request := asked.get()) is not None:
            scheduler.submit(request, Told(request.id, told))


class TwoProcesses:
    """`Stages` over the speech LM's process and a router of token2wav; for one event loop at a time."""

    def __init__(self, asked: Any, told: Any) -> None:
        self._asked, self._told = asked, told
        self._groups: dict[str, asyncio.Queue[TokenGroup]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.router: WaveRouter | None = None
        threading.Thread(target=self._listen, daemon=True).start()

    def serve(self, router: WaveRouter) -> None:
        """From now on, in the running loop, with this token2wav."""
        self._loop, self.router = asyncio.get_running_loop(), router

    def _listen(self) -> None:
        while True:
            name, tokens, reason = self._told.get()
            assert self._loop is not None
            group = TokenGroup(tokens, reason)
            self._loop.call_soon_threadsafe(self._groups[name].put_nowait, group)

    async def generate(
        self,
        prompt: Prompt,
        sampling: SamplingOptions,
        utterance_id: str,
        first_tokens: int,
        ahead: WaveSettings | None = None,  # noqa: ARG002
    ) -> AsyncGenerator[TokenGroup, None]:
        groups = self._groups[utterance_id] = asyncio.Queue()
        self._asked.put(Request(prompt, sampling, True, first_tokens, utterance_id))
        while True:
            group = await groups.get()
            yield group
            if group.finish_reason is not None:
                del self._groups[utterance_id]
                return

    async def wave(
        self,
        utterance_id: str,
        tokens: Sequence[int],
        position: int,
        last: bool,
        settings: WaveSettings,
        cushion_s: float,
    ) -> Floats:
        assert self.router is not None
        return await spoken(self.router, utterance_id, tokens, position, last, settings, cushion_s)

    def drop(self, utterance_id: str) -> None:
        """Nobody leaves early here."""


class Client:
    """One listener's requests."""

    def __init__(self, stages: TwoProcesses, hop: HopPolicy, voice: Voice, vocabulary: int) -> None:
        self._stages, self._hop, self._voice, self._vocabulary = stages, hop, voice, vocabulary

    async def hear(self, seed: int) -> tuple[Tensor, float, int]:
        """Samples, seconds to the first of them, and times that they came late."""
        generator = torch.Generator().manual_seed(seed)
        text = torch.randint(self._vocabulary, (TEXT_TOKENS,), generator=generator).tolist()
        sampling = SamplingOptions(min_tokens=SPEECH_TOKENS, max_tokens=SPEECH_TOKENS, runaway_span=0)
        request = SpeechRequest("-", self._voice, seed=seed, sampling=sampling)
        prompt = Prompt(text, prompt_speech=self._voice.speech_tokens.tolist())
        playback, first, parts, began = Playback(time.monotonic), 0.0, [], time.monotonic()
        chunks = speak(request, [prompt], self._stages, self._hop, 24_000, lambda: playback.cushion_s)
        async for chunk in chunks:
            if len(chunk.samples):
                first = first or time.monotonic() - began
                playback.sent(len(chunk.samples) / 24_000)
                parts.append(torch.from_numpy(chunk.samples))
        return torch.cat(parts), first, playback.underruns


async def level(client: Client, clients: int, seconds: float) -> dict[str, Any]:
    """So many listeners at a time, each asking again, for so long; answers under way are waited for."""
    began, heard = time.monotonic(), []

    async def listen(number: int) -> None:
        turn = 0
        while time.monotonic() - began < seconds:
            heard.append(await client.hear(1000 * number + turn))
            turn += 1

    await asyncio.gather(*(listen(number) for number in range(clients)))
    wall_s = time.monotonic() - began
    first = spread([first for _, first, _ in heard])
    return {
        "clients": clients,
        "utterances": len(heard),
        "ttfb_ms": first,
        "audio_s_per_s": round(sum(len(samples) for samples, _, _ in heard) / 24_000 / wall_s, 1),
        "continuous": round(sum(late == 0 for _, _, late in heard) / len(heard), 3),
        "wall_s": round(wall_s, 1),
    }


def start(copies: Sequence[WaveRuntime], settings: Token2WavSettings) -> WaveRouter:
    """Schedulers over networks that are loaded."""
    metrics = Metrics("token2wav")
    schedulers = []
    for number, copy in enumerate(copies):
        memory = WaveMemory(copy, settings.max_cached_voices, metrics, str(number))
        schedulers.append(start_scheduler(copy, settings, WaveMetrics(metrics, str(number)), memory))
    return WaveRouter(schedulers)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    ends = time.monotonic() + options.limit
    first_gpu, second_gpu = options.gpus
    machine = Machine.here()
    token2wav = Token2WavSettings(
        checkpoint_dir=options.checkpoint, device=first_gpu, max_flow_pages=options.pages
    ).resolved(machine)
    lm = TensorrtLlmSettings(checkpoint_dir=options.checkpoint, device=first_gpu).resolved(machine)
    context = multiprocessing.get_context("spawn")
    asked, told = context.Queue(), context.Queue()
    process = context.Process(target=run_lm, args=(lm, asked, told), daemon=True)
    process.start()
    results: list[dict[str, Any]] = []
    with ExitStack() as stack:
        stack.callback(process.join)
        stack.callback(asked.put, None)
        on_first = open_runtime(token2wav)
        on_second = open_runtime(token2wav.replace(device=second_gpu))
        assert told.get() is None
        stages = TwoProcesses(asked, told)
        client = make_client(stages, options.checkpoint)
        places = {"first": [on_first], "second": [on_second], "both": [on_first, on_second]}
        said: list[Tensor] = []
        for name, copies in places.items():
            results.append(asyncio.run(measure(name, copies, token2wav, client, stages, said, options)))
            report(options, results)
        if time.monotonic() < ends:
            apart = token2wav.replace(device=second_gpu, vocoder_device=first_gpu)
            copies = [open_runtime(apart)]
            name = "flow on the second, vocoder on the first"
            results.append(asyncio.run(measure(name, copies, token2wav, client, stages, said, options)))
            report(options, results)
    return 0


async def measure(
    name: str,
    copies: Sequence[WaveRuntime],
    settings: Token2WavSettings,
    client: Client,
    stages: TwoProcesses,
    said: list[Tensor],
    options: argparse.Namespace,
) -> dict[str, Any]:
    """One place: the audio of an utterance, then every level."""
    with closing(start(copies, settings)) as router:
        stages.serve(router)
        for _ in copies:  # each has the voice, and has been spoken with
            await asyncio.gather(*(client.hear(SEED) for _ in copies))
        audio, *_ = await client.hear(SEED)
        said.append(audio)
        difference = float((audio - said[0]).abs().max()) if len(audio) == len(said[0]) else None
        levels = [await level(client, clients, options.seconds) for clients in options.clients]
    return {"place": name, "audio_difference": difference, "levels": levels}


def make_client(stages: TwoProcesses, checkpoint: Path) -> Client:
    config = load_config(checkpoint)
    generator = torch.Generator().manual_seed(SEED)
    voice = Voice(
        key="0" * 64,
        transcript="",
        speech_tokens=torch.randint(6561, (PROMPT_TOKENS,), generator=generator).int(),
        prompt_mel=-6 + 2 * torch.randn(2 * PROMPT_TOKENS, config.flow.mel_bins, generator=generator),
        speaker_embedding=torch.randn(config.flow.speaker_dim, generator=generator),
        checkpoint_id="",
    )
    hop = HopPolicy.of(config.flow, CosyVoice2Settings())
    return Client(stages, hop, voice, min(1000, config.speech_lm.text_vocab_size))


def report(options: argparse.Namespace, results: Sequence[dict[str, Any]]) -> None:
    whole = {"benchmark": "two_gpus", **provenance(), "places": results}
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "two_gpus.json").write_text(json.dumps(whole, indent=1), encoding="utf-8")
    columns = (
        "token2wav",
        "clients",
        "utterances",
        "TTFB p50 / p95 ms",
        "audio s/s",
        "continuous",
        "differs",
    )
    rows = [
        [
            result["place"], str(one["clients"]), str(one["utterances"]),
            f"{one['ttfb_ms']['p50']:.0f} / {one['ttfb_ms']['p95']:.0f}", str(one["audio_s_per_s"]),
            f"{one['continuous']:.0%}", str(result["audio_difference"]),
        ]
        for result in results
        for one in result["levels"]
    ]  # fmt: skip
    print(table(columns, rows), flush=True)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--gpus", nargs=2, default=["cuda:0", "cuda:1"], help="default: %(default)s")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--seconds", type=float, default=6.0, help="of each level (%(default)s)")
    parser.add_argument("--pages", type=int, default=256, help="seconds of speech kept on each device")
    parser.add_argument("--limit", type=float, default=3600.0, help="no further place begins after so long")
    parser.add_argument("--output", type=Path, default=Path("results"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
