"""Steps of the speech LM and turns of token2wav beside each other on a GPU: on all of it, and each on a part.

Full size with random weights, no server: two threads of one process, one stepping sequences with 500
positions in their caches without a pause, the other computing turns of one second of speech for each
utterance. For each number of sequences and utterances: how long a step and a turn take alone, and beside
each other.

    python benchmarks/gpu_parts.py
    python benchmarks/gpu_parts.py --share 0.25 0.37 --pairs 16x8
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence

import torch

from cosyvoice_runtime.cuda_graphs import CapturedGraph, CudaGraphCapture
from cosyvoice_runtime.flow.graphed_calls import CallBuckets
from cosyvoice_runtime.gpu_parts import GpuPart, divide
from cosyvoice_runtime.kernels.fused_decoder import FusedDecoder
from cosyvoice_runtime.kernels.fused_solver import multiprocessors_of
from cosyvoice_runtime.kernels.slot_draw import chained_slot_draw
from cosyvoice_runtime.kernels.solvers import fused_solver
from cosyvoice_runtime.pipeline.flow_prompt import flow_prompt
from cosyvoice_runtime.serving.token2wav.torch_token2wav import TorchToken2Wav
from fused_step import Step, random_lm, with_few_words
from measuring.sizes import SIZES
from stages import machine, random_voice
from token2wav_chunks import FIRST, SECOND, load

DEVICE = torch.device("cuda", 0)
PROMPT_TOKENS = 75
CHUNKS = 14
"""Of an utterance, before the next one begins."""
SWITCH_S = 0.5e-3
"""As where both are served."""


class Turns:
    """Turns of utterances side by side.

    Args:
        stream: in which they are computed, and were captured.
    """

    def __init__(self, token2wav: TorchToken2Wav, utterances: int, stream: torch.cuda.Stream) -> None:
        self._token2wav, self._utterances, self._stream = token2wav, utterances, stream
        self._chunks = 0
        with torch.inference_mode(), torch.cuda.stream(stream):
            voice = random_voice(token2wav.flow.flow.config, PROMPT_TOKENS)
            self._prefix = token2wav.flow.prefix(flow_prompt(voice))
            self._open()

    def turn(self) -> None:
        """A chunk of each, on the host."""
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            if self._chunks == CHUNKS:
                self._close()
                self._open()
            for state in self._states:
                self._token2wav.push(state, [0] * (SECOND if self._chunks else FIRST))
            torch.cat(self._token2wav.advance(self._states)).cpu()
            self._chunks += 1

    def close(self) -> None:
        self._close()
        self._token2wav.flow.close(self._prefix)

    def _open(self) -> None:
        self._states = [self._token2wav.open(self._prefix, noise_seed=row) for row in range(self._utterances)]
        self._chunks = 0

    def _close(self) -> None:
        for state in self._states:
            self._token2wav.close(state)


class Steps:
    """A captured step, replayed and waited for."""

    def __init__(self, sequences: int, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        with torch.inference_mode(), torch.cuda.stream(stream):
            step = Step(random_lm(with_few_words(SIZES["full"]), torch.bfloat16), [500] * sequences)
            step.cache.data.normal_()
            capture = CudaGraphCapture(DEVICE, stream)
            self._graph: CapturedGraph[torch.Tensor] = capture(step.drawn(chained_slot_draw))
            torch.cuda.synchronize()

    def step(self) -> None:
        with torch.cuda.stream(self._stream):
            self._graph.replay()
            self._stream.record_event().synchronize()


def timed(work: Callable[[], None], ended: Callable[[], bool]) -> list[float]:
    """Milliseconds of each, until the end."""
    times = []
    while not ended():
        begun = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - begun))
    return times


def for_seconds(seconds: float) -> Callable[[], bool]:
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() >= end


def beside(steps: Steps, turns: Turns, seconds: float) -> tuple[list[float], list[float]]:
    """Times of steps and turns that go on at the same time."""
    over, of_steps = threading.Event(), []
    stepping = threading.Thread(target=lambda: of_steps.extend(timed(steps.step, over.is_set)))
    stepping.start()
    of_turns = timed(turns.turn, for_seconds(seconds))
    over.set()
    stepping.join()
    return of_steps, of_turns


def shown(times: Sequence[float]) -> str:
    return f"{statistics.median(times):.2f}"


def measure(
    token2wav: TorchToken2Wav,
    pairs: Sequence[tuple[int, int]],
    parts: tuple[GpuPart, GpuPart],
    seconds: float,
) -> None:
    """
    Args:
        parts: of steps and of turns.
    """
    for_steps, for_turns = (part.stream for part in parts)
    place = "; ".join(str(part.multiprocessors) for part in parts)
    rows = sorted({utterances for _, utterances in pairs})
    with torch.inference_mode(), torch.cuda.stream(for_turns):
        solver = fused_solver(token2wav.torch_flow.flow).on(parts[1].multiprocessors)
        token2wav.capture(CallBuckets(rows, (1,), (16,)), CudaGraphCapture(DEVICE, for_turns), solver)
    for sequences, utterances in pairs:
        steps, turns = Steps(sequences, for_steps), Turns(token2wav, utterances, for_turns)
        for _ in range(4):
            turns.turn()
        alone = shown(timed(steps.step, for_seconds(seconds))), shown(timed(turns.turn, for_seconds(seconds)))
        both = [shown(times) for times in beside(steps, turns, seconds)]
        turns.close()
        print(f"| {place} | {sequences}; {utterances} | {' | '.join((*alone, *both))} |", flush=True)


def pair(text: str) -> tuple[int, int]:
    sequences, utterances = text.split("x")
    return int(sequences), int(utterances)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--share", type=float, nargs="+", default=[0.25, 0.125], help="of steps (0.25 0.125)")
    parser.add_argument(
        "--pairs",
        type=pair,
        nargs="+",
        default=[(1, 1), (16, 4), (16, 8), (16, 16), (64, 16)],
        metavar="SEQUENCESxUTTERANCES",
    )
    parser.add_argument("--seconds", type=float, default=1.5, help="of each measurement (%(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    sys.setswitchinterval(SWITCH_S)
    most = max(utterances for _, utterances in options.pairs)
    pages = (most + 1) * (CHUNKS + 2 + PROMPT_TOKENS // SECOND)
    token2wav = load(SIZES["full"], "float16", "cuda", pages, 10)
    hift = token2wav.torch_vocoder.hift
    hift.fuse(FusedDecoder.of(hift.decoder))
    print(f"{machine('cuda')}\n\n| multiprocessors of steps; turns | sequences; utterances", end="")
    print(" | step alone | turn alone | step beside | turn beside |\n|---|---|---|---|---|---|")
    count = multiprocessors_of(DEVICE)
    whole = tuple(GpuPart(torch.cuda.Stream(DEVICE), count, torch.cuda.Stream(DEVICE)) for _ in range(2))
    measure(token2wav, options.pairs, whole, options.seconds)
    for share in options.share:
        parts = divide(DEVICE, share)
        measure(token2wav, options.pairs, (parts.steps, parts.turns[0]), options.seconds)


if __name__ == "__main__":
    main()
