"""An utterance's mel from its start, where no pages are left for it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.flow.onnx.call import CallSteps, FlowCall
from cosyvoice_runtime.flow.onnx.pages import CpuPages
from cosyvoice_runtime.flow.prompt import TokenSpan

if TYPE_CHECKING:
    from cosyvoice_runtime.flow.onnx.flow import OnnxFlow


def recomputed(flow: OnnxFlow, span: TokenSpan, most_blocks: int) -> Floats:
    """Mel ``[frames, mel]`` of a span that begins its utterance; nothing is kept.

    Each step goes through all parts before the next one begins: so memory holds keys and values of one step,
    and attention's scores of one part.

    Args:
        most_blocks: of a part.
    """
    calls = _calls(flow, span, most_blocks)
    empty = calls[0].pool.empty_tails()
    tokens, frames, conditions = empty.tokens, empty.frames, []
    for call in calls:
        of_call, tokens, frames = call.encode(tokens, frames)
        conditions.append(of_call)
    mels = [call.noise() for call in calls]
    velocities: list[Floats | None] = [None] * len(calls)
    for step in range(flow.num_steps):
        tails = empty.estimator[0]
        for place, call in enumerate(calls):
            steps = CallSteps(call, conditions[place])  # made anew: what they hold grows with the past
            before = velocities[place]
            mels[place], velocities[place], tails = steps.take(mels[place], step, before, tails, place=0)
    return np.concatenate(mels)


def _calls(flow: OnnxFlow, span: TokenSpan, most_blocks: int) -> list[FlowCall]:
    """Of the parts, over pages of their own, each with room for one step."""
    block = flow.config.encoder.chunk_tokens
    pool = CpuPages(flow.config, 1, flow.past_sizes, -(-span.count // block))
    pages = pool.acquire(pool.num_pages) or []
    edges = [*range(0, len(pages), most_blocks), len(pages)]
    parts = _parts(span, most_blocks * block, flow.lookahead_tokens)
    return [
        FlowCall(flow, pool, part, pages[:first], pages[first:end])
        for part, (first, end) in zip(parts, pairwise(edges), strict=True)
    ]


def _parts(span: TokenSpan, most: int, lookahead: int) -> Iterator[TokenSpan]:
    for start in range(0, span.count, most):
        count = min(most, span.count - start)
        yield TokenSpan(span.prompt, start, count, span.tokens[start:][: count + lookahead])
