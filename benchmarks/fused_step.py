"""A decode step of the speech LM, from tokens to logits: plain modules and fused kernels, in CUDA graphs.

Every sequence has ``context`` positions in its cache, a slot of its own or pages that lie anyhow. The error
is that of the logits against float32, ``|x - reference| / |reference|``, after prompts that the plain modules
fed: against a network with the same weights, rounded to bfloat16, and against one whose weights were never
rounded.

    python benchmarks/fused_step.py --batch 1 16 64 --context 100 500 1500
    python benchmarks/fused_step.py --batch 16 32 64 --share 0.25    on a part of the GPU
    python benchmarks/fused_step.py --batch 1 4 16 64 --context 500 --adapters 0 1 4 16 --rank 16 64
                                                          steps alone; sequences have the adapters in turn
    python benchmarks/fused_step.py --batch 1 16 64 --context 500 --heads 1 4 --text 60
                                                          steps with rows of attention behind them
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import json
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.lm_rows import PROJECTIONS
from cosyvoice_runtime.checkpoint.voice_adapters import RANKS, AdapterForm
from cosyvoice_runtime.gpu.kernels.rows import GpuRow, row_named, row_on
from cosyvoice_runtime.gpu.kernels.step_tiles import StepTiles
from cosyvoice_runtime.gpu.partitions.partition import GpuPart, divide
from cosyvoice_runtime.lm.cache import PAGE, CachePool
from cosyvoice_runtime.lm.generation import Generation, TokenLimits
from cosyvoice_runtime.lm.kernels.fused_step import FusedStep
from cosyvoice_runtime.lm.kernels.slot_draw import chained_slot_draw, slot_draw
from cosyvoice_runtime.lm.kernels.text_rows import text_rows
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.text_segment import MOST_TEXT
from cosyvoice_runtime.lm.torch.adapters import AdaptedLinear, AdapterStack
from cosyvoice_runtime.lm.torch.captured_rows import CapturedRows
from cosyvoice_runtime.lm.torch.device_steps import span_sizes
from cosyvoice_runtime.lm.torch.kv_cache import CacheView, KVCache, PagedKVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.lm.torch.slot_draws import DrawSlots, SlotTables, SlotWork
from making.random_tensors import random_tensors
from measuring.replays import distance, milliseconds, replayed
from measuring.sizes import FAMILIES, add_network

MAX_LEN = 2048
TEXT_ROWS = 1024
"""Bytes of the text table, which a step doesn't read."""


def with_few_words(config: ModelConfig) -> ModelConfig:
    """A configuration with a small text table."""
    return dataclasses.replace(
        config, speech_lm=dataclasses.replace(config.speech_lm, text_vocab_size=TEXT_ROWS)
    )


def own_slots(lm: SpeechLM, contexts: list[int]) -> KVCache:
    return KVCache(lm.config, len(contexts), MAX_LEN, lm.device, lm.dtype)


def in_pages(lm: SpeechLM, contexts: list[int]) -> KVCache:
    slots = len(contexts)
    cache = PagedKVCache(lm.config, slots, MAX_LEN, CachePool.of(slots * MAX_LEN), lm.device, lm.dtype)
    for positions in range(PAGE, MAX_LEN + 1, PAGE):
        for slot, context in enumerate(contexts):
            cache.pages.reserve(slot, min(positions, context + 1))
    cache.prepare()
    return cache


def span_of(context: int) -> int:
    """The captured span for a step after so many positions."""
    return next(size for size in span_sizes(MAX_LEN) if size > context)


class Step:
    """Bytes that a step of sequences of these contexts reads.

    Args:
        paged: slots share pages, taken in turn.
    """

    def __init__(self, lm: SpeechLM, contexts: list[int], paged: bool = False) -> None:
        self.lm = lm
        self.span = span_of(max(contexts))
        self.cache = (in_pages if paged else own_slots)(lm, contexts)
        generator = torch.Generator().manual_seed(len(contexts))
        self.tokens = torch.randint(lm.config.speech_tokens, (len(contexts),), generator=generator).cuda()
        self.positions = torch.tensor(contexts, device="cuda")

    @property
    def view(self) -> CacheView:
        return self.cache.view(0, self.cache.slots)

    def feed_prompts(self) -> None:
        """Random speech up to each sequence's position."""
        generator = torch.Generator().manual_seed(0)
        for slot, length in enumerate(self.positions.tolist()):
            if not length:
                continue
            ids = torch.randint(self.lm.config.speech_tokens, (length,), generator=generator).cuda()
            self.lm.prefill(self.lm.speech_embedding(ids), 0, self.cache.view(slot, slot + 1))

    def plain(self) -> Tensor:
        return self.lm.decode_step(self.tokens, self.positions, self.view, self.span)

    def drawn(self, draw: DrawSlots, row: GpuRow, part: GpuPart | None = None) -> Callable[[], Tensor]:
        """The fused step, and a draw of speech for each sequence."""
        slots, step = torch.arange(len(self.tokens), device="cuda"), self.fused(row, part=part)
        tables = SlotTables(self.lm.config, len(slots), MAX_LEN, self.lm.device)
        limits = TokenLimits(MAX_LEN, MAX_LEN)
        sequences = [
            Generation(self.lm.config, SamplingOptions(seed=slot), [], limits) for slot in range(len(slots))
        ]
        tables.set(slots, sequences)
        work = torch.full_like(slots, SlotWork.DRAW)
        return lambda: draw(step(), slots, work, tables)

    def fused(
        self, row: GpuRow, tiles: StepTiles | None = None, part: GpuPart | None = None
    ) -> Callable[[], Tensor]:
        step, view = FusedStep(self.lm, MAX_LEN, () if part is None else (part,), row), self.view
        return lambda: step(self.tokens, self.positions, view, self.span, tiles)


@functools.cache
def lm_tensors(config: ModelConfig) -> dict[str, Tensor]:
    return dict(random_tensors("llm", config, 0))


def random_lm(config: ModelConfig, dtype: torch.dtype) -> SpeechLM:
    return SpeechLM.from_tensors(config.speech_lm, lm_tensors(config), "cuda", dtype)


def errors(config: ModelConfig, batch: int, row: GpuRow, tiles: StepTiles | None) -> dict[str, float | bool]:
    """Of both ways, for contexts of all lengths; and whether two runs of the fused one give the same bits."""
    contexts = [(37 * index * index + 500) % 700 for index in range(batch)]
    step = Step(random_lm(config, torch.bfloat16), contexts)
    step.feed_prompts()
    rounded = Step(random_lm(config, torch.bfloat16).float(), contexts)
    exact = Step(random_lm(config, torch.float32), contexts)
    for other in (rounded, exact):
        other.cache.data.copy_(step.cache.data)
    plain, expected, truth = step.plain(), rounded.plain(), exact.plain()
    fused = step.fused(row, tiles)
    first, again = fused().clone(), fused()
    graph_logits = []
    graph = replayed(lambda: graph_logits.append(fused()))
    graph.replay()
    slots = torch.arange(batch, device="cuda")
    written = [each.cache.data[:, :, slots, :, step.positions].float() for each in (step, rounded)]
    return {
        "plain": distance(plain, expected),
        "fused": distance(first, expected),
        "keys and values": distance(*written),
        "plain, unrounded weights": distance(plain, truth),
        "fused, unrounded weights": distance(first, truth),
        "repeatable": bool(torch.equal(first, again) and torch.equal(first, graph_logits[-1])),
    }


def one_row(
    config: ModelConfig,
    batch: int,
    context: int,
    repeats: int,
    row: GpuRow,
    tiles: StepTiles | None,
    part: GpuPart | None,
) -> dict[str, float]:
    lm = random_lm(config, torch.bfloat16)
    step, paged = (Step(lm, [context] * batch, in_turns) for in_turns in (False, True))
    for each in (step, paged):
        each.cache.data.normal_()
    stream = None if part is None else part.stream
    work = {
        "plain ms": step.plain,
        "fused ms": step.fused(row, tiles, part),
        "fused and drawn ms": step.drawn(slot_draw, row, part),
        "with the draw chained ms": step.drawn(chained_slot_draw if row.chained else slot_draw, row, part),
        "plain over pages ms": paged.plain,
        "fused over pages ms": paged.fused(row, tiles, part),
    }
    return {name: milliseconds(replayed(each, stream).replay, repeats) for name, each in work.items()}


def adapted(
    config: ModelConfig, batch: int, context: int, repeats: int, row: GpuRow, count: int, form: AdapterForm
) -> dict[str, float]:
    """A fused step whose sequences have so many adapters in turn; with 0 the network knows none."""
    lm = random_lm(config, torch.bfloat16)
    for layer in lm.layers:
        for module in form.modules if count else ():
            linear = layer.get_submodule(module)
            assert isinstance(linear, AdaptedLinear)
            down = torch.randn(1 + count, len(linear.sizes) * form.rank, linear.in_features) / 32
            up = torch.randn(1 + count, linear.out_features, form.rank) / 32
            linear.stack = AdapterStack(down.cuda().bfloat16(), up.cuda().bfloat16(), linear.sizes)
    step = Step(lm, [context] * batch)
    step.cache.data.normal_()
    if count:
        step.cache.serve_adapters()
        assert step.cache.tables.adapters is not None
        step.cache.tables.adapters.copy_(1 + torch.arange(batch) % count)
    fused = step.fused(row)
    return {
        "ms": milliseconds(replayed(fused).replay, repeats),
        "from plain modules": distance(fused(), step.plain()),
    }


def with_rows(
    config: ModelConfig, batch: int, context: int, repeats: int, row: GpuRow, heads: int, text: int
) -> dict[str, float]:
    """A fused step whose sequences all ask for rows of so many heads, each of a layer of its own.

    Times on the GPU are of the step alone, of one whose queries are kept, and with rows behind it; those on
    the host are of launching rows, and of reading 25 rows of one sequence.
    """
    lm = random_lm(config, torch.bfloat16)
    step, keeping = (Step(lm, [context] * batch, paged=True) for _ in range(2))
    layers = range(0, config.speech_lm.num_layers, max(1, config.speech_lm.num_layers // heads))
    keeping.cache.keep_queries(lm.config, [(layer, 1) for layer in layers[:heads]])
    for each in (step, keeping):
        each.cache.data.normal_()
    kept = keeping.cache.kept
    assert kept is not None
    rows = CapturedRows(keeping.cache, kept, text_rows)
    sequences = [
        Generation(lm.config, SamplingOptions(), [], TokenLimits(MAX_LEN, MAX_LEN)) for _ in range(batch)
    ]
    for slot, sequence in enumerate(sequences):
        sequence.slot = slot
        sequence.rows = rows.follow(sequence, slice(1, 1 + text))
    fed = torch.tensor([[context] * batch, range(batch), [1] * batch], device=lm.device)
    plain, graph = (replayed(each.fused(row)) for each in (step, keeping))

    def both() -> None:
        graph.replay()
        rows.behind_step(fed)

    def launching() -> float:
        """Milliseconds."""
        started = time.perf_counter()
        rows.behind_step(fed)
        launched = time.perf_counter()
        torch.cuda.synchronize()
        return 1e3 * (launched - started)

    def reading() -> float:
        """Milliseconds."""
        sequences[0].tokens += [0] * 25
        started = time.perf_counter()
        assert sequences[0].rows is not None
        sequences[0].rows.take(25)
        return 1e3 * (time.perf_counter() - started)

    return {
        "step ms": milliseconds(plain.replay, repeats),
        "step that keeps queries ms": milliseconds(graph.replay, repeats),
        "with rows ms": milliseconds(both, repeats),
        "launching rows, on the host ms": statistics.median(launching() for _ in range(repeats)),
        "reading 25 rows, on the host ms": statistics.median(reading() for _ in range(repeats)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_network(parser)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--context", type=int, nargs="+", default=[100, 500, 1500])
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument(
        "--row", type=row_named, help="such as 8.6: tiles of these GPUs; default: of this one"
    )
    parser.add_argument(
        "--adapters", type=int, nargs="+", help="numbers of adapters by voice to measure alone"
    )
    parser.add_argument("--rank", type=int, nargs="+", choices=RANKS, default=[16], help="of the adapters")
    parser.add_argument("--modules", nargs="+", choices=list(PROJECTIONS), default=list(PROJECTIONS))
    parser.add_argument(
        "--heads", type=int, nargs="+", help="numbers of heads whose rows of attention to measure alone"
    )
    parser.add_argument("--text", type=int, default=60, help=f"text tokens of a row, up to {MOST_TEXT}")
    parser.add_argument("--share", type=float, help="of the GPU that steps have; default: all")
    parser.add_argument("--streamed", action="store_true", help="tiles of a part on the whole GPU, too")
    options = parser.parse_args()
    config = with_few_words(FAMILIES[options.family][options.size])
    row = options.row or row_on(torch.device("cuda"))
    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    part = None if options.share is None else divide(torch.device("cuda", 0), options.share).steps
    if part is not None:
        print("on", part.multiprocessors, "multiprocessors")
    on_part = part is not None or options.streamed
    bases = {batch: row.step_tiles(batch, on_part) for batch in options.batch}
    if options.heads:
        with torch.inference_mode():
            for batch, context, heads in itertools.product(options.batch, options.context, options.heads):
                result = with_rows(config, batch, context, options.repeats, row, heads, options.text)
                print(f"batch {batch} context {context} heads {heads}:", json.dumps(result), flush=True)
        return
    if options.adapters:
        with torch.inference_mode():
            measured = itertools.product(options.batch, options.context, options.rank, options.adapters)
            for batch, context, rank, count in measured:
                form = AdapterForm(rank, tuple(options.modules))
                result = adapted(config, batch, context, options.repeats, row, count, form)
                told = f"batch {batch} context {context} rank {rank} adapters {count}:"
                print(told, json.dumps(result), flush=True)
        return
    with torch.inference_mode():
        for batch, base in bases.items():
            tiles: StepTiles | None = base if options.streamed else None
            print(f"batch {batch} error:", json.dumps(errors(config, batch, row, tiles)), flush=True)
            for context in options.context:
                result = one_row(config, batch, context, options.repeats, row, tiles, part)
                print(f"batch {batch} context {context}:", json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
