"""What repetition-aware sampling costs engine tensorrt_llm: the logits callback alone, for each step.

    python benchmarks/ras_callback.py --device cuda

    python benchmarks/ras_callback.py --device cuda --history 600

Every row of the batch asks for it. TensorRT-LLM waits for the callback, so its time is added to each step. It
also hands over every row's ids so far as Python lists, made anew for each step, although nobody reads them
(``LogitsPostProcessorBatched`` in TensorRT-LLM's ``executor/types.h``, converted by nanobind's casters of
``std::vector``). That is measured with numpy's ``tolist``, which makes the same lists of the same numbers:
the least that it takes. With ``--device cpu`` it is measured alone.
"""

from __future__ import annotations

import argparse
import json
import time
from statistics import median

import numpy as np
import torch

from cosyvoice_runtime.checkpoint.huggingface import SILENT
from cosyvoice_runtime.checkpoint.making.architecture import FULL
from cosyvoice_runtime.lm import Generation, SamplingOptions
from cosyvoice_runtime.lm.generation import TokenLimits
from cosyvoice_runtime.serving.lm.engines.tensorrt_llm.conversion import LAYOUTS, EngineVocabulary
from cosyvoice_runtime.serving.lm.engines.tensorrt_llm.library_sampler import LibrarySampler
from measuring.machine import provenance

PUBLISHED_TEXT_TOKENS = 151663
WARM_UP = 5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--device", default="cuda", help="cuda, cuda:N, or cpu for the lists alone (%(default)s)"
    )
    parser.add_argument(
        "--history", type=int, default=600, help="ids of a row, prompt included (%(default)s)"
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--json", help="file for the figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures = {"lists": {rows: measure_lists(rows, options.history, options.steps) for rows in options.rows}}
    for layout in LAYOUTS if options.device != "cpu" else ():
        figures[layout] = {
            rows: measure(layout, rows, options.history, options.steps, options.device)
            for rows in options.rows
        }
    print("rows      " + "".join(f"{rows:>10}" for rows in options.rows))
    for layout, by_rows in figures.items():
        print(f"{layout:10}" + "".join(f"{ms:>7.2f} ms" for ms in by_rows.values()))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"median_ms": figures, **provenance()}, file, indent=2)


def measure_lists(rows: int, history: int, steps: int) -> float:
    """Median milliseconds that the lists of ids take."""
    ids = histories(rows, history)
    times = []
    for _ in range(WARM_UP + steps):
        begin = time.perf_counter()
        as_lists(ids)
        times.append(time.perf_counter() - begin)
    return median(times[WARM_UP:]) * 1000


def histories(rows: int, history: int) -> list[np.ndarray]:
    """Ids of each row, beyond the small numbers that Python keeps ready."""
    return [np.random.default_rng(row).integers(1000, 150_000, history, np.int32) for row in range(rows)]


def as_lists(ids: list[np.ndarray]) -> list[list[list[int]]]:
    """What the callback is given: of each row, of its one beam."""
    return [[row.tolist()] for row in ids]


def measure(layout: str, rows: int, history: int, steps: int, device: str) -> float:
    """Median milliseconds of a call with this many rows, until TensorRT-LLM could go on."""
    ids = histories(rows, history)
    config = FULL.speech_lm
    vocabulary = EngineVocabulary.of(layout, PUBLISHED_TEXT_TOKENS, config)
    bias = torch.full((vocabulary.output_rows,), SILENT)
    bias[vocabulary.speech] = 0.0
    sampler = LibrarySampler(vocabulary, bias if layout == "merged" else None)
    for client in range(rows):
        options = SamplingOptions(seed=client, min_tokens=2, max_tokens=10**6, runaway_span=0)
        sampler.enter(client, Generation(config, options, (), TokenLimits(2, 10**6)))
    generator = torch.Generator(device).manual_seed(0)
    times = []
    for _ in range(WARM_UP + steps):
        logits = torch.randn(rows, 1, vocabulary.output_rows, generator=generator, device=device) * 4
        logits[:, :, vocabulary.speech.stop - 3 :] += SILENT  # nobody ends
        times.append(call(sampler, list(logits.split(1)), ids, device))
    return median(times[WARM_UP:]) * 1000


def call(sampler: LibrarySampler, logits: list[torch.Tensor], ids: list[np.ndarray], device: str) -> float:
    torch.cuda.synchronize(device)
    begin = time.perf_counter()
    stream = torch.cuda.current_stream(device).cuda_stream
    sampler(range(len(logits)), logits, as_lists(ids), stream, range(len(logits)))
    torch.cuda.synchronize(device)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
