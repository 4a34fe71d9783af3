"""The flow's ten Euler steps for one chunk: plain modules and fused kernels, both in CUDA graphs.

Every utterance has spoken ``past`` frames and gets one chunk more. The error is that of the new mel against
the same network in float32, ``|x - reference| / |reference|``.

    python benchmarks/fused_kernels.py --utterances 1 8 32 --past 0 200 1000
    python benchmarks/fused_kernels.py --utterances 16 --past 500 --page-format float16 int8 --share 0.24
    python benchmarks/fused_kernels.py --family cosyvoice3 --utterances 1 --parts
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import json
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.flow.kernels.choice import fused_solver
from cosyvoice_runtime.flow.torch.call_inputs import BatchShape, PagedInputs
from cosyvoice_runtime.flow.torch.call_pages import LARGEST_CODE, coded
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.paged_call import PagedCall
from cosyvoice_runtime.flow.torch.pages import PagePool
from cosyvoice_runtime.flow.voice_flow import FlowPrompt, TokenSpan
from cosyvoice_runtime.gpu.kernels.dit_tiles import DiTTiles
from cosyvoice_runtime.gpu.kernels.rows import GpuRow, row_named, row_on
from cosyvoice_runtime.gpu.kernels.tiles import Tiles
from cosyvoice_runtime.gpu.partitions.partition import GpuPart, divide
from cosyvoice_runtime.settings.token2wav import EIGHT_BIT_PAGES
from making.random_tensors import random_tensors
from measuring.replays import distance, milliseconds, replayed
from measuring.sizes import FAMILIES, add_network

SAME = "float16"
"""Format of pages as the network computes."""
ERROR_UTTERANCES = 2
"""Pages of the comparison with float32, which take twice the memory."""


class Chunk:
    """One chunk of some blocks for some utterances that have all spoken as long."""

    def __init__(self, flow: Flow, pool: PagePool, utterances: int, past: int, blocks: int = 1) -> None:
        self.flow, self.pool, self.blocks = flow, pool, blocks
        self.tokens = flow.config.encoder.chunk_tokens
        self.before = past // pool.frames.frames
        self.held = [pool.acquire(self.before + blocks) or [] for _ in range(utterances)]
        self.call = self.at(self.before)
        self.started = self.call.start()

    def at(self, chunk: int) -> PagedCall:
        """The call of the chunk after so many blocks."""
        count = self.blocks if chunk == self.before else 1
        spans = [self._span(row, chunk, count) for row in range(len(self.held))]
        shape = BatchShape(len(spans), self.tokens * count, chunk)
        held = [pages[: chunk + count] for pages in self.held]
        inputs = PagedInputs(self.flow, shape, spans, held)
        return PagedCall(self.flow, self.pool, inputs)

    def _span(self, row: int, chunk: int, blocks: int) -> TokenSpan:
        config = self.flow.config
        generator = torch.Generator().manual_seed(row)
        length = self.tokens * (chunk + blocks) + config.lookahead_tokens
        tokens = torch.randint(config.token_vocab_size, (length,), generator=generator)
        speaker = torch.randn(config.speaker_dim, generator=generator)
        prompt = FlowPrompt(
            np.zeros(0, np.int64), np.zeros((0, config.mel_bins), np.float32), speaker.numpy()
        )
        start = self.tokens * chunk
        return TokenSpan(prompt, start, self.tokens * blocks, tokens[start:].numpy())

    def speak_past(self) -> None:
        """Compute the chunks before; without it pages and tails are zeros."""
        for chunk in range(self.before):
            self.at(chunk).run()
        self.restart()

    def fill_past(self) -> None:
        """Random keys and values, so that kernels read what they would."""
        pages, scales = self.pool.estimator_pages, self.pool.estimator_scales
        if scales is None:
            pages.normal_()
        else:
            pages.random_(-LARGEST_CODE, LARGEST_CODE + 1)
            scales.fill_(1 / LARGEST_CODE)

    def restart(self) -> None:
        self.call = self.at(self.before)
        self.started = self.call.start()

    def take(self, other: Chunk) -> None:
        """The pages and tails of a chunk in another type."""
        if self.pool.estimator_scales is None:
            self.pool.estimator_pages.copy_(other.pool.estimator_pages)
        else:
            codes, scales = coded(other.pool.estimator_pages)
            self.pool.estimator_pages.copy_(codes)
            self.pool.estimator_scales.copy_(scales.movedim(4, -1))
        for mine, theirs in (
            (self.pool.token_pages, other.pool.token_pages),
            (self.pool.frame_pages, other.pool.frame_pages),
            (self.pool.token_tails, other.pool.token_tails),
            (self.pool.frame_tails, other.pool.frame_tails),
            (self.pool.estimator_tails, other.pool.estimator_tails),
        ):
            mine.copy_(theirs)
        self.restart()

    def plain(self) -> None:
        for _ in range(self.flow.solver.num_steps):
            self.call.step(self.started)

    def fused(
        self, row: GpuRow, part: GpuPart | None = None, tiles: Tiles | DiTTiles | None = None
    ) -> Callable[[], None]:
        solver = fused_solver(self.flow, row)
        if part is not None:
            solver = solver.on(part.multiprocessors)
        places = self.call.solver_places(self.started)

        def solve() -> None:
            solver.solve(self.call.mel, self.started.conditions, places, tiles=tiles)
            places.keep_tails(self.pool.estimator_tails)

        return solve


def plain_ms(chunk: Chunk, repeats: int) -> float:
    """One captured step, replayed for all, as the server does."""
    step = replayed(lambda: chunk.call.step(chunk.started))

    def steps() -> None:
        for _ in range(chunk.flow.solver.num_steps):
            step.replay()

    return milliseconds(steps, repeats)


@functools.cache
def flow_tensors(config: ModelConfig) -> dict[str, Tensor]:
    return dict(random_tensors("flow", config, 0))


def random_flow(config: ModelConfig, dtype: torch.dtype, steps: int = 10, page_format: str = SAME) -> Flow:
    flow = Flow.from_tensors(config.flow, flow_tensors(config), "cuda", dtype, steps)
    flow.codes_pages = page_format == EIGHT_BIT_PAGES
    return flow


def errors(config: ModelConfig, past: int, row: GpuRow, page_format: str) -> dict[str, float | bool]:
    """Of both ways against float32; and whether two runs of the fused one give the same bits."""
    reference = random_flow(config, torch.float32)
    half = random_flow(config, torch.float16, page_format=page_format)
    pages = ERROR_UTTERANCES * (past // 50 + 1)
    truth = Chunk(reference, PagePool(reference, pages), ERROR_UTTERANCES, past)
    truth.speak_past()
    chunk = Chunk(half, PagePool(half, pages), ERROR_UTTERANCES, past)
    chunk.take(truth)
    conditions = dataclasses.replace(truth.started.conditions)
    noise = truth.call.mel.clone()
    truth.plain()
    guided = type(conditions)(
        *(part.to(torch.float16) for part in (conditions.mu, conditions.speaker, conditions.prompt))
    )
    chunk.started = dataclasses.replace(chunk.started, conditions=guided)
    mels = {}
    for name, compute in (
        ("plain", chunk.plain), ("fused", chunk.fused(row)), ("again", chunk.fused(row)),
    ):  # fmt: skip
        chunk.call.mel.copy_(noise)
        for held in chunk.held:
            chunk.pool.estimator_tails[held[-1]] = torch.nan
        compute()
        mels[name] = chunk.call.mel.clone()
    tails, tails_truth = (
        each.pool.estimator_tails[[pages[-1] for pages in each.held]].float() for each in (chunk, truth)
    )
    return {
        "plain": distance(mels["plain"], truth.call.mel),
        "fused": distance(mels["fused"], truth.call.mel),
        "fused tails": distance(tails, tails_truth),
        "repeatable": bool(torch.equal(mels["fused"], mels["again"])),
    }


def figures(
    config: ModelConfig, utterances: int, past: int, repeats: int, row: GpuRow, page_format: str,
    part: GpuPart | None, blocks: int,
) -> dict[str, float]:  # fmt: skip
    flow = random_flow(config, torch.float16, page_format=page_format)
    chunk = Chunk(flow, PagePool(flow, utterances * (past // 50 + blocks)), utterances, past, blocks)
    chunk.fill_past()
    plain = {} if part else {"plain ms": plain_ms(chunk, repeats)}
    chunk.call.mel.normal_()
    graph = replayed(chunk.fused(row, part), None if part is None else part.stream)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.current_stream() if part is None else part.stream):
        return {**plain, "fused ms": milliseconds(graph.replay, repeats)}


def parts(config: ModelConfig, utterances: int, past: int, row: GpuRow, page_format: str) -> str:
    """Microseconds of each kernel in a captured step, the time that it waits for the one before included."""
    flow = random_flow(config, torch.float16, 1, page_format)
    chunk = Chunk(flow, PagePool(flow, utterances * (past // 50 + 1)), utterances, past)
    graph = replayed(chunk.fused(row))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        graph.replay()
        torch.cuda.synchronize()
    kernels = profile.key_averages()
    return kernels.table(sort_by="self_device_time_total", row_limit=12, max_name_column_width=40)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_network(parser)
    parser.add_argument("--utterances", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--past", type=int, nargs="+", default=[200], help="frames")
    parser.add_argument("--blocks", type=int, default=1, help="of the new chunk, 50 frames each")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument(
        "--row", type=row_named, help="such as 8.6: tiles of these GPUs; default: of this one"
    )
    parser.add_argument("--parts", action="store_true", help="time of each kernel, too")
    parser.add_argument(
        "--page-format", nargs="+", choices=(SAME, EIGHT_BIT_PAGES), default=[SAME, EIGHT_BIT_PAGES]
    )
    parser.add_argument("--share", type=float, help="of the multiprocessors that are left to others")
    options = parser.parse_args()
    config = FAMILIES[options.family][options.size]
    row = options.row or row_on(torch.device("cuda"))
    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    part = divide(torch.device("cuda", 0), options.share).turns if options.share else None
    if part is not None:
        print("on", part.multiprocessors, "multiprocessors", flush=True)
    with torch.inference_mode():
        for kept in options.page_format:
            found = errors(config, options.past[0], row, kept)
            print(f"relative error with pages in {kept}:", json.dumps(found), flush=True)
        for utterances, kept in itertools.product(options.utterances, options.page_format):
            for past in options.past:
                result = figures(config, utterances, past, options.repeats, row, kept, part, options.blocks)
                said = f"utterances {utterances} past {past} pages {kept}:"
                print(said, json.dumps(result), flush=True)
                if options.parts:
                    print(parts(config, utterances, past, row, kept), flush=True)
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
