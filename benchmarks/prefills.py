"""Prompts of the speech LM, fed by captured passes and operation by operation, with the draws after them.

For prompts of all numbers and lengths that are captured, and for short texts that follow in sequences that
have begun (prompts, positions of each, positions attended to): the time of the GPU for a replayed pass, of
plain modules and with fused kernels between their products, that of the host to launch it, and the time of a
pass of plain modules launched operation by operation, the host's included. The error is that of the logits
against a network in float32 with the same weights, ``|x - reference| / |reference|``.

    python benchmarks/prefills.py
    python benchmarks/prefills.py --rows 1 16 --positions 128
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.cuda_graphs import CudaGraphCapture
from cosyvoice_runtime.kernels.fused_prefill import FusedPrefill
from cosyvoice_runtime.kernels.slot_draw import slot_draw
from cosyvoice_runtime.lm.cached_lm import CachedLM
from cosyvoice_runtime.lm.generation import Generation, TokenLimits
from cosyvoice_runtime.lm.kv_cache import KVCache
from cosyvoice_runtime.lm.network import SpeechLM
from cosyvoice_runtime.lm.prefill_graphs import GraphedPrefills, LogitsPrefill, Shape, prompt_shapes
from cosyvoice_runtime.lm.prefills import Prefill
from cosyvoice_runtime.lm.prompt import Prompt, prompt_codes
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.slot_draws import SlotTables, Turn
from cosyvoice_runtime.unplanned_attention import attend_unplanned
from fused_step import MAX_LEN, TEXT_ROWS, random_lm, with_few_words
from measuring.replays import distance, milliseconds
from measuring.sizes import FAMILIES, add_network

ROWS = 16
TEXT_TOKENS = 30
"""Of a prompt; the rest is speech."""


class Passes:
    """All ways on the slots of one cache."""

    def __init__(self, lm: SpeechLM, rows: int) -> None:
        self.lm = lm
        self.cache = KVCache(lm.config, 2 * rows, MAX_LEN, lm.device, lm.dtype)
        self.tables = SlotTables(lm.config, 2 * rows, MAX_LEN, lm.device)
        self.eager = CachedLM(lm, self.cache)
        self.fused_prefill = FusedPrefill(lm, MAX_LEN)
        self.captured = self._captured(rows, "plain", lm.prefill_codes)
        self.fused = self._captured(rows, "fused", self.fused_prefill)

    def group(self, shape: Shape) -> list[Prefill]:
        """Prompts that fill a graph, all but the last a little shorter."""
        start = 0 if shape.span is None else shape.span - shape.positions
        return [self._prefill(slot, shape.positions - 3 * (slot > 0), start) for slot in range(shape.rows)]

    def launch(self, group: list[Prefill]) -> Tensor:
        slots = torch.tensor([prefill.sequence.slot for prefill in group], device="cuda")
        logits = self.eager.prefill(group)
        self.tables.set(slots, [prefill.sequence for prefill in group])
        return slot_draw(logits, slots, torch.full_like(slots, Turn.DRAW), self.tables)

    def _captured(self, rows: int, way: str, feed: LogitsPrefill) -> GraphedPrefills:
        free, begin = torch.cuda.mem_get_info()[0], time.perf_counter()
        capture = CudaGraphCapture(self.lm.device)
        captured = GraphedPrefills(self.lm, self.cache, rows, slot_draw, self.tables, capture, feed)
        torch.cuda.synchronize()
        seconds, mib = time.perf_counter() - begin, (free - torch.cuda.mem_get_info()[0]) / 2**20
        print(f"{len(captured)} {way} passes captured in {seconds:.1f} s, {mib:.0f} MiB", flush=True)
        return captured

    def _prefill(self, slot: int, positions: int, start: int) -> Prefill:
        generator = torch.Generator().manual_seed(slot)
        words = min(TEXT_TOKENS, positions - 4)
        text = torch.randint(TEXT_ROWS, (words,), generator=generator).tolist()
        size = (positions - words - 2,)
        speech = torch.randint(self.lm.config.speech_tokens, size, generator=generator).tolist()
        limits = TokenLimits(9, 9)
        sequence = Generation(self.lm.config, SamplingOptions(seed=slot), speech, limits)
        sequence.slot = slot
        return Prefill(sequence, Prompt(text, prompt_speech=speech).parts(), start)


def errors(config: ModelConfig, half: SpeechLM, passes: Passes, shape: Shape) -> dict[str, float]:
    """Of all ways."""
    single = random_lm(config, torch.bfloat16).float()
    group = passes.group(shape)
    cache = KVCache(config.speech_lm, shape.rows, MAX_LEN, "cuda")
    slots = torch.arange(shape.rows, device="cuda")
    embeddings = [single.embed(prefill.parts) for prefill in group]
    expected = single.prefill_batch(embeddings, [0] * shape.rows, cache.gathered(slots))
    launched = passes.eager.prefill(group)
    codes = [prompt_codes(prefill.parts, half.config) for prefill in group]
    padded = torch.tensor([row + [0] * (shape.positions - len(row)) for row in codes]).cuda()
    lengths = torch.tensor([len(row) for row in codes]).cuda()
    view = passes.cache.gathered(slots)
    found = {"launched error": launched}
    for way, feed in (("captured", half.prefill_codes), ("fused", passes.fused_prefill)):
        found[f"{way} error"] = feed(padded, lengths, torch.zeros_like(lengths), view, None)
    return {way: distance(logits, expected) for way, logits in found.items()}


def host_ms(work: Callable[[], object], repeats: int, wait: bool) -> float:
    """Median time of the host; ``wait``: until the GPU has done it."""
    times = []
    for _ in range(repeats + 2):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        if wait:
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - begin))
    return median(times[2:])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_network(parser)
    parser.add_argument("--rows", type=int, nargs="+", help="default: all")
    parser.add_argument("--positions", type=int, nargs="+", help="default: all")
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    config = with_few_words(FAMILIES[options.family][options.size])
    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    attend_unplanned()  # as the server does
    with torch.inference_mode():
        lm = random_lm(config, torch.bfloat16)
        passes = Passes(lm, ROWS)
        for shape in prompt_shapes(ROWS, MAX_LEN):
            if shape.rows not in (options.rows or [shape.rows]):
                continue
            if shape.positions not in (options.positions or [shape.positions]):
                continue
            show(shape, measured(passes, shape, options.repeats))
            if shape.positions == 128 and shape.span is None:
                show(shape, errors(config, lm, passes, shape))


def measured(passes: Passes, shape: Shape, repeats: int) -> dict[str, float]:
    group = passes.group(shape)
    passes.captured.run(group)
    passes.fused.run(group)
    return {
        "replayed ms": milliseconds(passes.captured.graph(shape).replay, repeats),
        "fused ms": milliseconds(passes.fused.graph(shape).replay, repeats),
        "host ms": host_ms(lambda: passes.fused.run(group), repeats, wait=False),
        "launched ms": host_ms(lambda: passes.launch(group), repeats, wait=True),
    }


def show(shape: Shape, figures: dict[str, float]) -> None:
    rounded = {name: float(f"{value:.3g}") for name, value in figures.items()}
    print(*filter(None, shape), json.dumps(rounded), flush=True)


if __name__ == "__main__":
    main()
