#!/usr/bin/env python3
"""The speech LM on a CPU, by PyTorch and by ONNX Runtime: a step of several sequences, a prompt, memory.

    python benchmarks/lm_runtimes.py
    python benchmarks/lm_runtimes.py --checkpoint checkpoints/CosyVoice2-0.5B --threads 2 --rounds 5
    python benchmarks/lm_runtimes.py --size full --only onnx-int8 onnx-float32

Every runtime is measured in a process of its own, as two pools of threads in one would disturb each
other, one after the other in each round, so that whatever else the machine does meets them all. The figures
are medians of the rounds' medians, and the least of all. Steps are those of sequences with as many positions
as the prompt has. The error is that of logits against PyTorch in float32, over the steps of one sequence
that PyTorch has drawn: root mean square in parts of theirs, and how far apart the probabilities are (total
variation, 0 to 1).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.checkpoint import load_config
from cosyvoice_runtime.checkpoint.config import SpeechLMConfig
from cosyvoice_runtime.lm import Generation, Prompt, SamplingOptions
from cosyvoice_runtime.lm.cache_slots import CacheSlots
from cosyvoice_runtime.lm.generation import TokenLimits
from cosyvoice_runtime.lm.host_steps import CachedNetwork
from cosyvoice_runtime.lm.prefills import Prefill
from cosyvoice_runtime.lm.sampling import softmax
from cosyvoice_runtime.onnx_cpu.lm_files import LmFiles
from measuring.machine import provenance

RUNTIMES = ("torch", "onnx-float32", "onnx-int8", "onnx-int8_rows")
DEMO_VOICE = Path(__file__).parents[1] / "demo_voice"
WARM_UP, TOKENS = 3, 60
Row = dict[str, Any]


class Network(NamedTuple):
    """A runtime's network over a cache of its own."""

    config: SpeechLMConfig
    network: CachedNetwork
    cache: CacheSlots

    def feed(self, slot: int, prompt: Prompt) -> npt.NDArray[np.float32]:
        """Logits [V] after a prompt, in a slot that begins with it."""
        sequence = Generation(self.config, SamplingOptions(), (), TokenLimits(0, 1))
        sequence.slot = slot
        return np.asarray(self.network.prefill([Prefill(sequence, prompt.parts())]))[0]

    def step(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        """Logits [slots, V] after a token for each of the first slots."""
        return np.asarray(self.network.decode(range(len(tokens)), tokens))


def main() -> None:
    options = parse()
    if options.measured:
        print(json.dumps(measured(options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = prepared(options, Path(folder))
        rounds = [
            {runtime: in_a_process(runtime, checkpoint, Path(folder), options) for runtime in options.only}
            for _ in range(options.rounds)
        ]
        figures = {runtime: combined([each[runtime] for each in rounds]) for runtime in options.only}
        if not options.no_errors:
            for runtime in options.only:
                figures[runtime] |= errors(runtime, checkpoint, Path(folder), options.threads)
    print(table(figures, options.batches))
    if options.json:
        report = {"figures": figures, "threads": options.threads, **provenance()}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, help="default: the demo voice")
    parser.add_argument("--size", choices=("tiny", "full"), help="make one with random weights instead")
    parser.add_argument("--only", nargs="+", choices=RUNTIMES, default=list(RUNTIMES))
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--positions", type=int, default=200, help="of the prompt (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=30, help="of each kind (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of one operation (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-errors", action="store_true", help="don't compare logits")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--measured", choices=RUNTIMES, help=argparse.SUPPRESS)
    parser.add_argument("--files", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def prepared(options: argparse.Namespace, folder: Path) -> Path:
    """The checkpoint, and the files of each format beside it in ``folder``."""
    from cosyvoice_runtime.checkpoint.making import make_checkpoint
    from cosyvoice_runtime.onnx_cpu.lm_export import export_lm

    checkpoint: Path = options.checkpoint or DEMO_VOICE
    if options.size:
        checkpoint = make_checkpoint(folder / "checkpoint", options.size, seed=0)
    for runtime in options.only:
        if runtime != "torch":
            began = time.perf_counter()
            export_lm(checkpoint, folder / runtime, weight_format(runtime))
            mib = sum(path.stat().st_size for path in (folder / runtime).iterdir()) / 2**20
            print(
                f"{runtime}: {mib:.0f} MiB of files, made in {time.perf_counter() - began:.1f} s", flush=True
            )
    return checkpoint


def weight_format(runtime: str) -> str:
    return runtime.partition("-")[2]


def in_a_process(runtime: str, checkpoint: Path, folder: Path, options: argparse.Namespace) -> Row:
    given = ["--measured", runtime, "--checkpoint", str(checkpoint), "--files", str(folder / runtime)]
    given += ["--positions", str(options.positions), "--steps", str(options.steps)]
    given += ["--threads", str(options.threads), "--batches", *map(str, options.batches)]
    done = subprocess.run([sys.executable, __file__, *given], stdout=subprocess.PIPE, check=True, text=True)
    row: Row = json.loads(done.stdout)
    print(runtime, {key: value for key, value in row.items() if key != "steps"}, flush=True)
    return row


def measured(options: argparse.Namespace) -> Row:
    """Milliseconds of each step and prompt, and MiB, in this process."""
    slots = max(options.batches)
    opened = opened_network(
        options.measured, options.checkpoint, options.files, options.threads, slots, 2 * options.positions
    )
    prompt = Prompt([index % 199 for index in range(options.positions - 2)])
    prompts = list(timed(lambda: opened.feed(0, prompt), 5))
    for slot in range(slots):
        opened.feed(slot, prompt)
    steps = {}
    for size in options.batches:
        lengths = opened.cache.lengths.copy()
        steps[str(size)] = list(timed(lambda size=size: opened.step([5] * size), options.steps))
        opened.cache.lengths[:] = lengths
    return {"prompt_ms": median(prompts), "steps": steps, "peak_mib": peak_mib()}


def peak_mib() -> float:
    """Most memory of this process so far, what is mapped from files included."""
    status = Path("/proc/self/status").read_text().splitlines()
    [peak] = [line.split()[1] for line in status if line.startswith("VmHWM:")]
    return int(peak) / 2**10


def timed(compute: Callable[[], object], times: int) -> Iterator[float]:
    for turn in range(WARM_UP + times):
        began = time.perf_counter()
        compute()
        if turn >= WARM_UP:
            yield 1000 * (time.perf_counter() - began)


def opened_network(
    runtime: str, checkpoint: Path, files: Path, threads: int, slots: int, max_len: int
) -> Network:
    config = load_config(checkpoint)
    if runtime == "torch":
        import torch

        from cosyvoice_runtime.checkpoint import Layout
        from cosyvoice_runtime.checkpoint.as_torch import load_tensors
        from cosyvoice_runtime.lm import KVCache, SpeechLM
        from cosyvoice_runtime.lm.cached_lm import CachedLM

        torch.set_num_threads(threads)
        lm = SpeechLM.from_tensors(config.speech_lm, load_tensors(Layout(checkpoint), "llm", config))
        kept = KVCache(lm.config, slots, max_len)
        return Network(lm.config, CachedLM(lm, kept), kept)
    from cosyvoice_runtime.onnx_cpu.lm import OnnxCachedLM, OnnxKVCache, OnnxSpeechLM

    onnx_lm = OnnxSpeechLM(config.speech_lm, LmFiles(files), threads)
    cache = OnnxKVCache(onnx_lm.config, slots, max_len)
    return Network(onnx_lm.config, OnnxCachedLM(onnx_lm, cache), cache)


def combined(rows: Sequence[Row]) -> Row:
    steps = {size: [row["steps"][size] for row in rows] for size in rows[0]["steps"]}
    return {
        "prompt_ms": median(row["prompt_ms"] for row in rows),
        "step_ms": {size: median(map(median, each)) for size, each in steps.items()},
        "least_ms": {size: min(map(min, each)) for size, each in steps.items()},
        "peak_mib": median(row["peak_mib"] for row in rows),
    }


def errors(runtime: str, checkpoint: Path, folder: Path, threads: int) -> Row:
    """Of a runtime's logits against PyTorch's, over tokens that PyTorch has drawn."""
    if runtime == "torch":
        return {}
    wanted = opened_network("torch", checkpoint, folder, threads, 1, 2 * TOKENS)
    found = opened_network(runtime, checkpoint, folder / runtime, threads, 1, 2 * TOKENS)
    pairs = np.stack(list(taught(wanted, found)), axis=1)
    probabilities = softmax(pairs[0]), softmax(pairs[1])
    rms = np.sqrt(np.mean((pairs[0] - pairs[1]) ** 2) / np.mean(pairs[0] ** 2))
    apart = np.abs(probabilities[0] - probabilities[1]).sum(axis=1) / 2
    return {"error": float(rms), "apart": float(apart.mean())}


def taught(wanted: Network, found: Network) -> Iterator[npt.NDArray[np.float32]]:
    """Logits [2, V] of both after the same tokens."""
    prompt = Prompt([index % 199 for index in range(20)])
    rows = wanted.feed(0, prompt), found.feed(0, prompt)
    generator = np.random.default_rng(0)
    for _ in range(TOKENS):
        yield np.stack(rows)
        codes = rows[0][None, : wanted.config.speech_tokens]
        token = int((softmax(codes)[0] / generator.exponential(size=codes.shape[1])).argmax())
        rows = wanted.step([token])[0], found.step([token])[0]


def table(figures: dict[str, Row], batches: Sequence[int]) -> str:
    head = [f"step of {size}, ms (least)" for size in batches]
    lines = [
        f"| | {' | '.join(head)} | prompt, ms | peak, MiB | error | apart |",
        f"|---|{'---|' * (len(head) + 4)}",
    ]
    for runtime, row in figures.items():
        steps = [f"{row['step_ms'][str(size)]:.2f} ({row['least_ms'][str(size)]:.2f})" for size in batches]
        ends = [f"{row['prompt_ms']:.1f}", f"{row['peak_mib']:.0f}"]
        ends += [f"{row[key]:.1e}" if key in row else "" for key in ("error", "apart")]
        lines.append(f"| {runtime} | {' | '.join([*steps, *ends])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
