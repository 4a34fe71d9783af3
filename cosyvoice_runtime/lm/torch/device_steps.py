"""Steps that draw on the device: the next one is launched before the host has read the ids of this one.

The host sees an id one step late. A prompt is launched before the step, and if its text is whole, the step
goes on with what the prompt will have drawn: its first two ids come together. A sequence that ended
meanwhile, or that asked for text, makes what was launched for it void: the device has marked its slot and
changed nothing (`Count.LIVE`), and the cache's entries are overwritten before they are attended to.

A stream of text that has drawn the fill marker is fed after the host has read that, a step later than where
the host draws; no other sequence waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from cosyvoice_runtime.gpu.buckets import bucket_for
from cosyvoice_runtime.gpu.cuda_graphs import EagerCalls, GraphCapture, ReplayedGraph
from cosyvoice_runtime.gpu.transfer import Fetch, integers, move
from cosyvoice_runtime.lm.generation import Drawn, Generation
from cosyvoice_runtime.lm.prefills import Prefill, Prefills, Residents, grouped
from cosyvoice_runtime.lm.sampling import IntArray
from cosyvoice_runtime.lm.text_rows import TextRows
from cosyvoice_runtime.lm.torch.captured_rows import CapturedRows, ComputeRows, text_rows_plain
from cosyvoice_runtime.lm.torch.kv_cache import CacheView, KVCache, PagedKVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.lm.torch.prefill_graphs import GraphedPrefills, LogitsPrefill
from cosyvoice_runtime.lm.torch.slot_draws import DrawSlots, SlotTables, SlotWork, draw_plain, work_after_feed
from cosyvoice_runtime.lm.torch.speech_decoder import CachedLM, SpeechDecoder

FIRST_SPAN = 256
BATCH_STEP = 16

LogitsStep = Callable[[Tensor, Tensor, CacheView, int], Tensor]
"""Computes logits of tokens, positions, slots and span, as :meth:`SpeechLM.decode_step`; can be captured."""


@runtime_checkable
class SpanlessStep(Protocol):
    """A :data:`LogitsStep` that reads as far as each sequence goes, whatever the span."""

    def division(self, batch: int, span: int) -> Hashable:
        """The division of a step's work; spans with equal divisions are computed alike."""


@dataclass(frozen=True)
class CapturedPasses:
    """Computations that graphs capture.

    Attributes:
        step, prefill: compute logits of steps and of prompts; None: the network's own passes.
        draw: draws after prompts.
        step_draw: draws in steps.
        rows: computes rows of attention behind steps and prompts, uncaptured.
    """

    step: LogitsStep | None = None
    prefill: LogitsPrefill | None = None
    draw: DrawSlots = draw_plain
    step_draw: DrawSlots = draw_plain
    rows: ComputeRows = text_rows_plain


PLAIN_PASSES = CapturedPasses()


class GraphedSteps:
    """Decode steps with their draws, one captured graph for each batch size and span.

    A step feeds the ids that the tables hold as drawn last. All graphs are made at the start: where the
    checkpoint has adapters, each with them, and without for steps in which no sequence has one.

    Attributes:
        picks: whether a step may take any slots, as pages are found by tables. Otherwise it takes the first
            ones, whose positions plain modules then read without a copy.

    Args:
        step: captured before the draws.
        cache: the graphs read and write its memory; it may not be in use yet.
        draw: draws from the logits.
        tables: state of the cache's slots.
    """

    def __init__(
        self,
        step: LogitsStep,
        cache: KVCache,
        draw: DrawSlots,
        tables: SlotTables,
        capture: GraphCapture,
    ) -> None:
        self._step = step
        self._cache = cache
        self._draw = draw
        self._tables = tables
        self._capture = capture
        self._sizes = batch_sizes(cache.slots)
        self._spans = span_sizes(cache.max_len)
        self.picks = isinstance(cache, PagedKVCache)
        every = torch.arange(cache.slots, device=cache.data.device)
        none = 0 * every
        # Positions come first, whose alignment kernels are compiled for.
        self._fed = {size: torch.stack([none, every, none])[:, :size].clone() for size in self._sizes}
        # Largest first: the smaller ones then find their memory in the pool.
        self._graphs: dict[tuple[int, int, bool], ReplayedGraph[Tensor]] = {}
        captured: dict[Hashable, ReplayedGraph[Tensor]] = {}
        for (size, span, division), adapted in product(self._shapes(), cache.kinds):
            if (division, adapted) not in captured:
                captured[division, adapted] = self._captured(size, span, adapted)
            self._graphs[size, span, adapted] = captured[division, adapted]

    def slots(self, needed: IntArray) -> tuple[IntArray, IntArray]:
        """The slots [S] that a step takes when it needs those, each once, and the places of those in it."""
        if not self.picks:
            return np.arange(bucket_for(self._sizes, int(needed.max()) + 1)), needed
        others = bucket_for(self._sizes, len(needed)) - len(needed)
        places = np.arange(len(needed))
        if not others:
            return needed, places
        is_unused = np.ones(self._cache.slots, bool)
        is_unused[needed] = False
        unused = np.flatnonzero(is_unused)
        shortest = unused[np.argsort(self._cache.lengths[unused], kind="stable")[:others]]
        return np.concatenate([needed, shortest]), places

    def span(self, needed: int) -> int:
        """Positions that a step attends to when it needs at least ``needed`` of them."""
        return bucket_for(self._spans, needed)

    def run(self, slots: IntArray, positions: IntArray, work: IntArray, span: int) -> Tensor:
        """Launch a step without waiting.

        Args:
            slots: [S], from :meth:`slots`.
            positions: [S], each below ``span``: where the last id drawn is fed.
            work: [S], values of `SlotWork`.
            span: from :meth:`span`.

        Returns:
            ids [S] drawn, as `DrawSlots`; overwritten by the next step.
        """
        self._cache.prepare()
        size = len(slots)
        move(torch.from_numpy(np.stack([positions, slots, work])), self._fed[size])
        graph = self._graphs[size, span, self._cache.adapted]
        graph.replay()
        return graph.result

    def fed(self, size: int) -> Tensor:
        """Positions, slots and work ``[3, size]`` of the latest step of so many sequences."""
        return self._fed[size]

    def _shapes(self) -> Iterator[tuple[int, int, Hashable]]:
        """Batch size, span, and the division by which several shapes share the graph of the longest span."""
        step = self._step
        for size in reversed(self._sizes):
            for span in reversed(self._spans):
                yield (
                    size,
                    span,
                    (size, step.division(size, span) if isinstance(step, SpanlessStep) else span),
                )

    def _captured(self, size: int, span: int, adapted: bool) -> ReplayedGraph[Tensor]:
        positions, slots, work = self._fed[size]

        def step() -> Tensor:
            tokens = self._tables.tokens[slots]
            view = self._cache.gathered(slots, adapted) if self.picks else self._cache.view(0, size, adapted)
            return self._draw(self._step(tokens, positions, view, span), slots, work, self._tables)

        return self._capture(step)


def batch_sizes(slots: int) -> list[int]:
    """1, 2, 4, 8, then multiples of 16; the last one is ``slots``."""
    small = [size for size in (1, 2, 4, 8) if size < slots]
    return [*small, *range(BATCH_STEP, slots, BATCH_STEP), slots]


def span_sizes(max_len: int) -> list[int]:
    """256, doubled as often as it stays below ``max_len``, and ``max_len``."""
    sizes = []
    size = FIRST_SPAN
    while size < max_len:
        sizes.append(size)
        size *= 2
    return [*sizes, max_len]


STEP_POSITIONS = 512
"""Most positions fed between two steps while other sequences speak; a longer prompt is fed alone."""


class UnderWay(NamedTuple):
    """A pass that was launched, and whose ids have yet to be read.

    Attributes:
        sequences: the sequences drawn for.
        rows: [n] of their ids among the fetched ones.
        positions: positions of the cache at which ids that are speech are fed.
    """

    sequences: list[Generation]
    rows: IntArray
    positions: list[int]
    ids: Fetch

    def without(self, gone: Collection[Generation]) -> UnderWay:
        """The pass for the other sequences alone."""
        kept = [row for row, sequence in enumerate(self.sequences) if sequence not in gone]
        return UnderWay(
            [self.sequences[row] for row in kept],
            self.rows[kept],
            [self.positions[row] for row in kept],
            self.ids,
        )

    def drawn(self) -> Iterator[Drawn]:
        """Wait for the ids, if any sequence still wants them."""
        if self.sequences:
            ids = self.ids.array()[self.rows].tolist()
            yield from zip(self.sequences, ids, self.positions, strict=True)


class DeviceSteps:
    """Steps that are captured and replayed, one ahead of what the host knows.

    Args:
        prefill_batch: most prompts fed in one pass.
        passes: the computations that are captured.
    """

    def __init__(
        self,
        lm: SpeechDecoder,
        cache: KVCache,
        prefill_batch: int,
        capture: GraphCapture,
        passes: CapturedPasses,
    ) -> None:
        lm.prepare(cache.max_len)
        self._cache = cache
        self._residents = Residents(cache)
        self._waiting = Prefills(cache, self._residents, prefill_batch)
        self._eager = CachedLM(lm, cache)
        self._draw = passes.draw
        self._tables = SlotTables(lm.config, cache.slots, cache.max_len, lm.device)
        self._prefills = (
            GraphedPrefills(lm, cache, prefill_batch, passes.draw, self._tables, capture, passes.prefill)
            if isinstance(lm, SpeechLM)  # This stream reads ids alone.
            else None
        )
        step = passes.step or lm.decode_step
        self._graphs = GraphedSteps(step, cache, passes.step_draw, self._tables, capture)
        self._rows = None if cache.kept is None else CapturedRows(cache, cache.kept, passes.rows)
        self._uncaptured = EagerCalls()
        self._under_way: list[UnderWay] = []
        # Sequences with two draws under way: of their prompts, and of the step after them.
        self._begun: set[Generation] = set()

    @property
    def picks(self) -> bool:
        """Whether some sequences can be brought forward while others wait."""
        return self._graphs.picks

    def follow(self, sequence: Generation, text: slice) -> TextRows | None:
        return None if self._rows is None else self._rows.follow(sequence, text)

    def advance(self, running: Sequence[Generation], first: Collection[Hashable] = ()) -> list[Drawn]:
        """Launch all passes that can be, then read those launched before, as `Steps.advance`.

        Args:
            first: sequences whose step the others are left out of, but for those that begin; empty: none is.
        """
        self._under_way = [self._current(each) for each in self._under_way]
        prompts = list(self._prefill(running))
        begins = {each for prompt in prompts for each in prompt.sequences if each.stream is None}
        stepping = [each for each in running if each in first or each in begins] if first else running
        step = list(self._step(stepping, begins, running))
        if first and not step:  # They wait for pages: a step for all keeps the device at work.
            step = list(self._step(running, begins, running))
        self._begun = begins & {sequence for each in step for sequence in each.sequences}
        before, self._under_way = self._under_way, [*prompts, *step]
        return [drawn for each in before for drawn in each.drawn()]

    def _current(self, launched: UnderWay) -> UnderWay:
        """The pass without sequences that have ended or stalled since its launch."""
        for sequence in launched.sequences:
            sequence.unfed = False
        gone = {each for each in launched.sequences if each.stalled or each.finish_reason is not None}
        if not gone:
            return launched
        for sequence in gone:
            # The slot of a sequence that has ended is free, or taken again already.
            if sequence.finish_reason is None:
                self._cache.lengths[sequence.slot] -= 1
        return launched.without(gone)

    def _step(
        self, stepping: Sequence[Generation], begins: Collection[Generation], running: Sequence[Generation]
    ) -> Iterator[UnderWay]:
        """One step for those of ``stepping`` that can go on, also where a prompt is launched before it."""
        drawing = {sequence for each in self._under_way for sequence in each.sequences}.union(begins)
        works = {  # The draw of the other sequences, mostly all, is another one.
            each: _next_work(each, (each in drawing) + (each in self._begun))
            for each in stepping
            if each not in drawing or len(each.tokens) + 2 >= each.plain_until
        }
        idle = {each for each, work in works.items() if work is SlotWork.IDLE}
        going_on = self._residents.going_on([each for each in stepping if each not in idle], running)
        if going_on:
            filling = [each for each, work in works.items() if work is SlotWork.FILL and each in going_on]
            yield self._launched(going_on, filling)

    def _launched(self, sequences: list[Generation], filling: list[Generation]) -> UnderWay:
        needed = self._residents.slots(sequences)
        slots, places = self._graphs.slots(needed)
        work = np.zeros(self._cache.slots, dtype=np.int64)  # Zero is `SlotWork.IDLE`.
        work[needed] = SlotWork.DRAW
        work[[sequence.slot for sequence in filling]] = SlotWork.FILL
        lengths = self._cache.lengths
        fed = lengths[slots]
        span = self._graphs.span(min(int(fed.max()) + 1, self._cache.max_len))
        # A stream that waits with a full cache has no next position; it can only end from there.
        ids = self._graphs.run(slots, np.minimum(fed, span - 1), work[slots], span)
        if self._rows is not None:
            self._rows.behind_step(self._graphs.fed(len(slots)))
        positions = lengths[needed] + 1
        lengths[needed] = positions
        return UnderWay(sequences, places, positions.tolist(), Fetch(ids))

    def _prefill(self, running: Sequence[Generation]) -> Iterator[UnderWay]:
        hungry = self._residents.hungry(running)
        if not hungry:
            return
        for sequence in hungry:
            sequence.replay()
        captured: list[Prefill] = []
        other: list[Prefill] = []
        for prefill in self._waiting.ready(self._fed_now(hungry, running), running):
            fits = self._prefills is not None and self._prefills.fits([prefill])
            (captured if fits else other).append(prefill)
        captured.sort(key=lambda prefill: prefill.start > 0)
        if self._prefills is not None:
            for group in grouped(captured, self._prefills.fits):
                yield self._drawing(group, self._prefills.run(group))
        for group in grouped(other, self._waiting.fits):
            yield self._drawing(group, self._fed(group))

    def _fed_now(self, hungry: Sequence[Generation], running: Sequence[Generation]) -> Iterator[Generation]:
        """Sequences that may be fed at once: prompts of one pass while others speak, and always texts that go
        on."""
        speaking = any(sequence.tokens for sequence in running)
        positions = 0
        for sequence in hungry:
            waiting = sequence.unfed_prompt
            if speaking and waiting and positions and positions + waiting > STEP_POSITIONS:
                continue
            positions += waiting
            yield sequence

    def _fed(self, group: list[Prefill]) -> Tensor:
        """Ids [sequences] drawn after a pass that is launched operation by operation."""
        if self._prefills is not None:
            self._uncaptured.add(f"{max(prefill.positions for prefill in group)} positions of a prompt")
        sequences = [prefill.sequence for prefill in group]
        logits = self._eager.prefill(group)
        slots = integers([sequence.slot for sequence in sequences], logits.device)
        self._tables.set(slots, sequences)
        works = integers([work_after_feed(sequence) for sequence in sequences], logits.device)
        return self._draw(logits, slots, works, self._tables)

    def _drawing(self, group: list[Prefill], ids: Tensor) -> UnderWay:
        sequences, ends = [each.sequence for each in group], [each.end for each in group]
        if self._rows is not None:
            self._rows.behind_prompts(sequences, ends)
        return UnderWay(sequences, np.arange(len(group)), ends, Fetch(ids))


def _next_work(sequence: Generation, drawing: int) -> SlotWork:
    """Work of the next step for a sequence, with so many draws under way."""
    if drawing:
        last = len(sequence.tokens) + drawing >= sequence.limits.max_tokens
        goes_on = not (last or sequence.must_fill)  # Otherwise the fill marker is under way.
    else:
        goes_on = sequence.unfed
    if not goes_on:
        return SlotWork.IDLE
    return SlotWork.FILL if sequence.fills_after(drawing) else SlotWork.DRAW
