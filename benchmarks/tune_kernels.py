"""The fastest tiles of fused kernels on this GPU, written into a file for ``token2wav.kernels_file``.

    python benchmarks/tune_kernels.py --output row.json
    python benchmarks/tune_kernels.py --output row.json --family cosyvoice3
    python benchmarks/tune_kernels.py --output row.json --start row.json --family cosyvoice3    # for both

Every field of the tiles is tried in turn, the others as they are, on networks of full size with random
weights: the flow's steps for some utterances after 200 frames, and the speech LM's steps for some sequences
of 500 positions, on the whole GPU and on the part that a server gives them. Most of what is tried is compiled
first, on all cores and without the GPU. What no kernel has room for is left out. A GPU that works for others
meanwhile tells other times.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.config_flow import DiTConfig
from cosyvoice_runtime.compilation.captures import PAGES, bare_flow, bare_speech_lm, steps_alone
from cosyvoice_runtime.compilation.compiler import ForkedCompiler
from cosyvoice_runtime.compilation.forms import META, Compiled, collecting, compile_for
from cosyvoice_runtime.flow.kernels.choice import fused_solver
from cosyvoice_runtime.flow.solvers import EULER
from cosyvoice_runtime.flow.torch.call_inputs import BatchShape, PagedInputs
from cosyvoice_runtime.flow.torch.paged_call import PagedCall
from cosyvoice_runtime.flow.torch.pages import PagePool
from cosyvoice_runtime.gpu.kernels.rows import GpuRow, read_row, row_named, row_of, write_row
from cosyvoice_runtime.gpu.kernels.tiles import ByAmount
from cosyvoice_runtime.gpu.nvidia import GpuLimits, gpu_limits
from cosyvoice_runtime.gpu.partitions.partition import divide
from cosyvoice_runtime.lm.kernels.fused_step import FusedStep
from cosyvoice_runtime.settings.machine import usable_cores
from fused_kernels import Chunk, random_flow
from fused_step import MAX_LEN, Step, in_pages, random_lm, span_of, with_few_words
from measuring.replays import milliseconds, replayed
from measuring.sizes import FAMILIES, add_network
from measuring.tiles_to_try import UNET, Candidates, dit_candidates, step_candidates

T = TypeVar("T")

PAST, CONTEXT = 200, 500
"""Frames that utterances have spoken, and positions of sequences."""
FLOW_STEPS = 2
"""Steps of the flow that are timed."""
FRAMES = 100
"""Frames of an utterance's chunk, for both rows of guidance."""
CHUNKS = PAST // (FRAMES // 2) + 1
MOST_UTTERANCES = 32
PART = 0.25
"""The share of the multiprocessors that steps have while token2wav computes, nearly as by default."""
REPEATS = 15
GAIN = 0.99
"""The part of the time that other tiles may take at most to be chosen: less is noise."""


@dataclass(frozen=True)
class Work:
    """Tiles of a row that are tuned.

    Attributes:
        name: for the log.
        place: the row's attribute, and which of its tiles: the limit of an amount, None for more than all.
        size: utterances or sequences.
        best: the tiles.
        tried: values by field.
    """

    name: str
    place: tuple[str, float | None]
    size: int
    best: Any
    tried: Candidates

    @property
    def of_steps(self) -> bool:
        return self.place[0].endswith("steps")

    def variants(self) -> Iterator[Any]:
        """The tiles, and those with one field changed."""
        yield self.best
        for field, values in self.tried.items():
            for value in values:
                yield replace(self.best, **{field: value})


def work_of(config: ModelConfig, row: GpuRow, multiprocessors: int) -> list[Work]:
    """All tiles of a row that a family's networks use."""
    field = "dit" if isinstance(config.flow.estimator, DiTConfig) else "unet"
    found: list[Work] = []
    for limit, middle, tiles in _amounts(getattr(row, field)):
        size = min(max(1, round(middle * multiprocessors / FRAMES)), MOST_UTTERANCES)
        tried = dit_candidates(FRAMES * size) if field == "dit" else UNET
        if field == "unet":
            tiles = replace(tiles, joint=None)  # With the joint kernel, that of its parts is not computed.
        found.append(Work(f"flow of {size} utterances", (field, limit), size, tiles, tried))
    for place, part in (("steps", ""), ("part_steps", ", on a part")):
        for limit, _, tiles in _amounts(getattr(row, place)):
            size = int(limit or 64)
            tried = step_candidates(size, tiles)
            found.append(Work(f"steps of {size} sequences{part}", (place, limit), size, tiles, tried))
    return found


def _amounts(tiles: ByAmount[T]) -> Iterator[tuple[float | None, float, T]]:
    """Each limit with an amount between it and the one before, and its tiles."""
    before = 0.0
    for limit in sorted(tiles.up_to):
        yield limit, (before + limit) / 2, tiles.up_to[limit]
        before = limit
    yield None, 1.2 * before, tiles.more


def with_tiles(row: GpuRow, place: tuple[str, float | None], tiles: Any) -> GpuRow:
    """The row with other tiles in a place."""
    field, limit = place
    old = getattr(row, field)
    if limit is None:
        return replace(row, **{field: replace(old, more=tiles)})
    return replace(row, **{field: replace(old, up_to={**old.up_to, limit: tiles})})


Launch = Callable[[Any, int], object]
"""Launches kernels with tiles for a number of utterances or sequences."""


def compile_all(config: ModelConfig, row: GpuRow, gpu: GpuLimits, every: list[Work]) -> None:
    """Compile all variants for a GPU, in a process that does not open it."""
    started, compiled = time.monotonic(), list[Compiled]()
    compile_for(gpu.capability)
    compiler = ForkedCompiler(usable_cores(), compiled.append)
    with torch.inference_mode(), collecting(compiler.take):
        flow, steps = _flow_launches(config, row, gpu), _step_launches(config, row)
        for work in every:
            launch = steps if work.of_steps else flow
            for tiles in work.variants():
                launch(tiles, work.size)
    compiler.finish()
    failed = sum(bool(form.failure) for form in compiled)
    took_s = time.monotonic() - started
    print(f"{len(compiled)} forms compiled in {took_s:.0f} s; {failed} can't be", flush=True)


def _flow_launches(config: ModelConfig, row: GpuRow, gpu: GpuLimits) -> Launch:
    flow = steps_alone(bare_flow(config.flow, FLOW_STEPS, EULER))
    pool = PagePool(flow, PAGES)
    solver = fused_solver(flow, row).on(gpu.multiprocessors)

    def launch(tiles: Any, size: int) -> None:
        shape = BatchShape(size, flow.config.encoder.chunk_tokens, PAST // pool.frames.frames)
        call = PagedCall(flow, pool, PagedInputs(flow, shape))
        started = call.start()
        solver.solve(call.mel, started.conditions, call.solver_places(started), steps=1, tiles=tiles)

    return launch


def _step_launches(config: ModelConfig, row: GpuRow) -> Launch:
    lm = bare_speech_lm(with_few_words(config).speech_lm)
    step = FusedStep(lm, MAX_LEN, row=row)

    def launch(tiles: Any, size: int) -> None:
        places = torch.empty(size, dtype=torch.int64, device=META)
        step(places, places, in_pages(lm, [CONTEXT] * size).view(0, size), span_of(CONTEXT), tiles)

    return launch


def measure(config: ModelConfig, row: GpuRow, every: list[Work]) -> GpuRow:
    """The row with the fastest tiles of this GPU, which is this process's from here on."""
    part = divide(torch.device("cuda", 0), PART).steps
    lm = random_lm(with_few_words(config), torch.bfloat16)
    flow = random_flow(config, torch.float16, FLOW_STEPS)
    for work in every:
        compute: Callable[[Any], Callable[[], object]]
        if work.of_steps:
            step = Step(lm, [CONTEXT] * work.size, paged=True)
            step.cache.data.normal_()
            compute = partial(step.fused, row)
        else:
            chunk = Chunk(flow, PagePool(flow, work.size * CHUNKS), work.size, PAST)
            chunk.fill_past()
            chunk.call.mel.normal_()
            compute = partial(chunk.fused, row, None)
        tiles = tuned(work, partial(_timed, compute, part.stream if work.place[0] == "part_steps" else None))
        row = with_tiles(row, work.place, tiles)
        torch.cuda.empty_cache()
    return row


def _timed(compute: Callable[[Any], Callable[[], object]], stream: Any, tiles: Any) -> float:
    """Milliseconds of what these tiles compute, as a CUDA graph in a stream."""
    return milliseconds(replayed(compute(tiles), stream).replay, REPEATS)


def tuned(work: Work, timed: Callable[[Any], float]) -> Any:
    """The fastest tiles: each field's best value in turn."""
    best = work.best
    first = fastest = _times({"": best}, timed).get("", math.inf)  # Another GPU's tiles may have no room.
    for field, values in work.tried.items():
        times = _times({value: replace(best, **{field: value}) for value in values}, timed)
        if times and times[winner := min(times, key=times.__getitem__)] < GAIN * fastest:
            fastest, best = times[winner], replace(best, **{field: winner})
    print(f"{work.name}: {first:.3f} -> {fastest:.3f} ms", flush=True)
    return best


def _times(variants: Mapping[Any, Any], timed: Callable[[Any], float]) -> dict[Any, float]:
    """Milliseconds of each variant that the GPU has room for."""
    times = {}
    for value, tiles in variants.items():
        try:
            times[value] = timed(tiles)
        except Exception as problem:  # The language and the driver raise errors of many kinds.
            print(f"  left out: {value}: {type(problem).__name__}: {str(problem)[:60]}", flush=True)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_network(parser)
    parser.add_argument("--output", type=Path, required=True, help="file for the row")
    parser.add_argument(
        "--start", help="a row's file, or such as 8.6: tiles of these GPUs; default: the GPU's own"
    )
    options = parser.parse_args()
    config, started = FAMILIES[options.family][options.size], time.monotonic()
    gpu = gpu_limits(0)
    row = row_of(gpu.capability, gpu.shared_bytes)
    if options.start:
        path = Path(options.start)
        other = read_row(path) if path.exists() else row_named(options.start)
        row = replace(other, chained=row.chained)
    every = work_of(config, row, gpu.multiprocessors)
    fork = multiprocessing.get_context("fork")
    compiling = fork.Process(target=compile_all, args=(config, row, gpu, every))
    compiling.start()
    compiling.join()
    if compiling.exitcode:
        parser.error(f"nothing was compiled: the process ended with {compiling.exitcode}")
    with torch.inference_mode():
        row = measure(config, row, every)
    name = torch.cuda.get_device_name()
    write_row(options.output, replace(row, name=name))
    print(f"{options.output}: {name}, tuned in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
