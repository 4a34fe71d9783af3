"""What a call of a model costs in the process that computes for several: nothing is computed.

    python benchmarks/host_calls.py --streams 16

A process of its own serves two instant models on its socket: token2wav answers a chunk with 1 s of audio,
tensorrt_llm a request with eight groups of 25 tokens. They are called as cosyvoice2 calls them, in so many
streams at once, then one at a time. CPU time of the host's event loop, in which Python's lock is held while
the networks' threads wait for it, of its whole process, and of the caller's; microseconds for each call.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from typing import Any

import numpy as np

from cosyvoice_runtime.serving.host.host_calls import HostCalls
from cosyvoice_runtime.serving.triton.schema import TENSORRT_LLM, TOKEN2WAV
from cosyvoice_runtime.serving.triton.stage_calls import StageCalls
from measuring.machine import ROOT
from measuring.report import table

STAND_INS = ROOT / "tests" / "fakes"
"""What Triton gives to the processes of models."""
SECOND = {"waveform": np.zeros((1, 24_000), np.float32)}
GROUP = {
    "output_ids": np.zeros((1, 1, 25), np.int32),
    "sequence_length": np.full((1, 1), 25, np.int32),
    "finish_reason": np.array([[b""]], np.object_),
}
GROUPS = 8
CHUNK = {
    "utterance_id": "u" * 32, "speech_tokens": range(25), "position": 0, "last": False, "voice_key": "v" * 64,
    "noise_seed": 0, "speed": 1.0, "cushion": 0.5,
}  # fmt: skip
PROMPT = {
    "input_ids": range(100), "input_lengths": 100, "request_output_len": 500, "min_tokens": 2, "seed": 1,
    "streaming": True, "sampling_strategy": "ras", "runtime_top_k": 25, "runtime_top_p": 0.8,
    "temperature": 1.0, "repetition_penalty": 1.0, "ras_window": 10, "ras_threshold": 0.1,
    "first_tokens": 18, "group_tokens": 25,
}  # fmt: skip
WITH_VOICE = CHUNK | {"prompt_speech_feat": np.zeros((1500, 80), np.float32)}
REFERENCE = CHUNK | {"prompt_speech_feat": np.zeros((72_000, 80), np.float32)}


def serve(socket: Path) -> None:
    """Tell, for each line that is read, the CPU time of the loop and of the process."""
    from cosyvoice_runtime.serving.host.model_host import ModelHost
    from cosyvoice_runtime.serving.triton.request import Reply, answer

    def speak(request: Any) -> None:
        answer(request, "token2wav", SECOND)

    def generate(request: Any) -> None:
        with Reply(request, "tensorrt_llm") as reply:
            for _ in range(GROUPS):
                reply.send(**GROUP)

    host = ModelHost(socket, {"token2wav": InstantModel(speak), "tensorrt_llm": InstantModel(generate)})
    [loop] = [thread for thread in threading.enumerate() if thread.name == "networks"]
    clock = time.pthread_getcpuclockid(loop.ident or 0)
    print("open", flush=True)
    for _ in sys.stdin:
        print(json.dumps([time.clock_gettime(clock), time.process_time()]), flush=True)
    host.close()


class InstantModel:
    """Answers requests in a thread of its own.

    Args:
        answer: called with each.
    """

    def __init__(self, answer: Callable[[Any], None]) -> None:
        self._answer = answer
        self._requests: SimpleQueue[Any] = SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            self._requests.put(request)

    def _run(self) -> None:
        while True:
            self._answer(self._requests.get())


async def measure(
    socket: Path, host_times: Callable[[], list[float]], streams: int, calls: int
) -> list[list[Any]]:
    stages = StageCalls(
        dict.fromkeys(("token2wav", "tensorrt_llm"), HostCalls(socket, "token2wav")), 60.0, own_pid
    )

    async def wave(inputs: dict[str, Any] = CHUNK) -> None:
        assert (await stages.call(TOKEN2WAV, inputs))["waveform"].size == 24_000

    async def generate() -> None:
        assert len([group async for group in stages.stream(TENSORRT_LLM, PROMPT, "id")]) == GROUPS

    async def repeat(call: Callable[[], Awaitable[None]]) -> None:
        for _ in range(calls):
            await call()

    rows: list[list[Any]] = []
    for name, call in (("a chunk", wave), (f"{GROUPS} groups of tokens", generate)):
        await call()
        before = [*host_times(), time.process_time()]
        await asyncio.gather(*(repeat(call) for _ in range(streams)))
        spent = np.subtract([*host_times(), time.process_time()], before)
        rows.append([name, *(f"{each / (streams * calls) * 1e6:.0f}" for each in spent), await alone(call)])
    for name, inputs in (("a chunk with a voice of 0.5 MiB", WITH_VOICE), ("22 MiB", REFERENCE)):
        rows.append([name, "-", "-", "-", await alone(lambda inputs=inputs: wave(inputs), 30)])  # type: ignore[misc]
    await stages.close()
    return rows


async def alone(call: Callable[[], Awaitable[None]], calls: int = 300) -> str:
    """Median time of one call."""
    times = []
    for _ in range(calls):
        started = time.perf_counter()
        await call()
        times.append(time.perf_counter() - started)
    return f"{median(times) * 1e6:.0f}"


def own_pid(_: str) -> int:
    """A process that is watched as a stage's is."""
    return os.getpid()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--calls", type=int, default=100, help="of each stream (100)")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
    else:
        call(options.streams, options.calls)


def call(streams: int, calls: int) -> None:
    """Print what calls of a host cost that is started for it."""
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder, "networks")
        command = [sys.executable, __file__, "--serve", str(socket)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(STAND_INS)])}
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as host:
            said, read = host.stdin, host.stdout
            assert said is not None
            assert read is not None
            assert read.readline() == "open\n"

            def host_times() -> list[float]:
                print(file=said, flush=True)
                return json.loads(read.readline())

            rows = asyncio.run(measure(socket, host_times, streams, calls))
            said.close()
    print(table(("us for each call", "host's loop", "host", "caller", "time of one alone"), rows))


if __name__ == "__main__":
    main()
