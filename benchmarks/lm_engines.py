"""Tokens per second and first-token latency of the speech LM's engines, side by side on one GPU.

    python benchmarks/lm_engines.py --engines torch vllm
    python benchmarks/lm_engines.py --checkpoint checkpoints/CosyVoice2-0.5B --concurrency 1 16 64 \
        --engines torch vllm tensorrt_llm --tensorrt-llm-dir engines/tensorrt_llm/engine

The engines run in this process, without Triton. All requests of a run start together and have the same
length; the first token's latency counts from there to the step that brought it. ``vllm_alone`` is vLLM with
its own sampler: what it is faster by is the price of the library's draws, which ras needs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from cosyvoice_runtime.checkpoint import load_config
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.engine import LmEngine, OpenEngine, prepare_engine
from cosyvoice_runtime.lm.engines.vllm.export import export
from cosyvoice_runtime.settings import Machine, Settings, TensorrtLlmSettings
from making import make_checkpoint
from measuring import vllm_alone
from measuring.machine import provenance

ENGINES = ("torch", "vllm", "vllm_alone", "tensorrt_llm")
STRATEGIES = ("greedy", "nucleus", "ras")
TEXT_TOKENS, PROMPT_SPEECH_TOKENS = 20, 75


class Run(NamedTuple):
    """Seconds of a run, and until each request's first token."""

    seconds: float
    first_s: list[float]


@dataclasses.dataclass(frozen=True)
class Figures:
    """Medians over the runs; the latency is first each run's median over its requests."""

    engine: str
    strategy: str
    concurrency: int
    tokens_per_s: float
    ms_per_token: float
    first_token_ms: float
    tokens_per_s_runs: list[float]


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = options.checkpoint or make_checkpoint(Path(folder, "checkpoint"), options.size, seed=0)
        figures = []
        for engine in options.engines:
            figures += list(
                measure_engine(engine, read_settings(engine, checkpoint, Path(folder), options), options)
            )
    print(table(figures))
    if options.json:
        report = {"figures": [dataclasses.asdict(row) for row in figures], **provenance()}
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, help="default: one with random weights is made")
    parser.add_argument("--size", choices=("tiny", "full"), default="full", help="of the one that is made")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=["torch", "vllm"])
    parser.add_argument("--tensorrt-llm-dir", type=Path, help="an engine of stage 1")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument("--tokens", type=int, default=100, help="of each request (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each kind (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    return parser.parse_args(arguments)


def read_settings(
    engine: str, checkpoint: Path, folder: Path, options: argparse.Namespace
) -> TensorrtLlmSettings:
    """Settings of an engine, its files made if that takes no more than a copy of the weights."""
    name = "vllm" if engine == "vllm_alone" else engine
    directory = options.tensorrt_llm_dir or folder if engine == "tensorrt_llm" else folder / "vllm"
    assigned = [f"tensorrt_llm.engine={name}", f"tensorrt_llm.engine_dir={directory}"]
    assignments = [f"checkpoint_dir={checkpoint}", *assigned, *options.settings]
    settings = Settings.read(assignments).resolved(Machine.here()).tensorrt_llm
    if name == "vllm":
        export(checkpoint, directory, settings.dtype)
    return settings


def measure_engine(
    name: str, settings: TensorrtLlmSettings, options: argparse.Namespace
) -> Iterator[Figures]:
    """Figures of one engine, each also printed as it comes."""
    prepare = vllm_alone.prepare if name == "vllm_alone" else prepare_engine
    engine = opened(name, prepare(settings))
    codes = load_config(settings.checkpoint_dir).speech_lm.speech_tokens
    try:
        for strategy in options.strategies:
            if (name, strategy) == ("vllm_alone", "ras"):
                continue
            for concurrency in options.concurrency:
                prompts = make_prompts(concurrency, codes)
                row = measure(engine, prompts, strategy, options.tokens, options.repeats)
                yield told(Figures(name, strategy, concurrency, *row))
    finally:
        engine.close()


def opened(name: str, open_engine: OpenEngine) -> LmEngine:
    begin = time.perf_counter()
    engine = open_engine()
    print(f"{name}: opened in {time.perf_counter() - begin:.1f} s", flush=True)
    return engine


def told(figures: Figures) -> Figures:
    print(row_of(figures), flush=True)
    return figures


def measure(
    engine: LmEngine, prompts: Sequence[Prompt], strategy: str, tokens: int, repeats: int
) -> tuple[float, float, float, list[float]]:
    """Tokens per second, milliseconds per token of a request, milliseconds to the first, and all runs."""
    options = sampling(strategy, tokens)
    run(engine, prompts, options)  # the first one of its size is slower
    runs = [run(engine, prompts, options) for _ in range(repeats)]
    rates = [len(prompts) * tokens / one.seconds for one in runs]
    first_ms = median(1000 * median(one.first_s) for one in runs)
    decode_ms = median(1000 * (one.seconds - max(one.first_s)) / max(tokens - 1, 1) for one in runs)
    return median(rates), decode_ms, first_ms, rates


def run(engine: LmEngine, prompts: Sequence[Prompt], options: SamplingOptions) -> Run:
    """All prompts together, to their ends.

    Raises:
        CosyVoiceError: a request failed.
    """
    begin = time.perf_counter()
    left = {
        engine.add(prompt, dataclasses.replace(options, seed=seed)) for seed, prompt in enumerate(prompts)
    }
    first: dict[Any, float] = {}
    while left:
        for row in engine.step():
            if row.error is not None:
                raise row.error
            if row.tokens:
                first.setdefault(row.handle, time.perf_counter() - begin)
            if row.finish_reason is not None:
                left.remove(row.handle)
    return Run(time.perf_counter() - begin, list(first.values()))


def sampling(strategy: str, tokens: int) -> SamplingOptions:
    return SamplingOptions(strategy, min_tokens=tokens, max_tokens=tokens, runaway_span=0)


def make_prompts(count: int, codes: int) -> list[Prompt]:
    """Arbitrary ids: a sentence, and the voice of a 3 s recording."""
    generator = torch.Generator().manual_seed(0)
    text = [torch.randint(1, 200, (TEXT_TOKENS,), generator=generator).tolist() for _ in range(count)]
    voice = torch.randint(codes, (PROMPT_SPEECH_TOKENS,), generator=generator).tolist()
    return [Prompt(one, prompt_text=text[0], prompt_speech=voice) for one in text]


def table(figures: Sequence[Figures]) -> str:
    head = [
        "| engine | strategy | requests | tokens/s | ms/token | first token ms |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *map(row_of, figures)])


def row_of(row: Figures) -> str:
    return (
        f"| {row.engine} | {row.strategy} | {row.concurrency} | {row.tokens_per_s:.0f} | "
        f"{row.ms_per_token:.2f} | {row.first_token_ms:.1f} |"
    )


if __name__ == "__main__":
    main()
