"""Steps whose ids are drawn where the logits are: the next one is launched before this one's ids are read.

The host sees an id one step late. What was launched for a sequence that ended meanwhile, or that asked for
text, is dropped: the device has marked its slot and changed nothing (`Count.LIVE`), and what was written into
the cache is overwritten before it is attended to. A stream of text that has drawn the fill marker is fed when
that has been read, a step later than where ids are drawn on the host; nobody else waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from cosyvoice_runtime.cuda_graphs import EagerCalls, GraphCapture
from cosyvoice_runtime.lm.cached_lm import CachedLM
from cosyvoice_runtime.lm.generation import Drawn, Generation
from cosyvoice_runtime.lm.kv_cache import KVCache
from cosyvoice_runtime.lm.network import SpeechLM
from cosyvoice_runtime.lm.prefill_graphs import CapturedPrefills, GraphedPrefills, NoPrefills
from cosyvoice_runtime.lm.prefills import Prefill, Prefills, grouped
from cosyvoice_runtime.lm.residents import Residents
from cosyvoice_runtime.lm.slot_draws import DrawSlots, SlotTables, Turn, turn_after_feed
from cosyvoice_runtime.lm.speech_decoder import SpeechDecoder
from cosyvoice_runtime.lm.step_graphs import GraphedSteps, LogitsStep
from cosyvoice_runtime.transfer import Fetch, integers

STEP_POSITIONS = 512
"""Of prompts that are fed between two steps while others speak, who wait; a longer prompt is fed alone."""


class Row(NamedTuple):
    """A draw under way.

    Attributes:
        place: in the fetched ids.
        position: of the cache, where the id is fed if it is speech.
        turn: a fill marker is never fed.
    """

    sequence: Generation
    place: int
    position: int
    turn: Turn


class UnderWay(NamedTuple):
    """A pass that was launched, and whose ids nobody has read."""

    rows: list[Row]
    ids: Fetch

    def drawn(self) -> list[Drawn]:
        """Wait for the ids of sequences that still run."""
        rows = [row for row in self.rows if row.sequence.finish_reason is None]
        if not rows:
            return []
        ids = self.ids.wait().tolist()
        return [Drawn(row.sequence, ids[row.place], row.position) for row in rows]


class StepDraws(NamedTuple):
    """What draws after a prompt, and what in a captured step."""

    prompt: DrawSlots
    step: DrawSlots


class DeviceSteps:
    """Replays captured steps, one ahead of what the host knows.

    Args:
        prefill_batch: prompts fed in one pass at most.
        step: computes the logits of captured steps.
        draws: what draws.
    """

    def __init__(
        self,
        lm: SpeechDecoder,
        cache: KVCache,
        prefill_batch: int,
        capture: GraphCapture,
        step: LogitsStep,
        draws: StepDraws,
    ) -> None:
        lm.prepare(cache.max_len)
        self._cache = cache
        self._residents = Residents(cache)
        self._waiting = Prefills(cache, self._residents, prefill_batch)
        self._eager = CachedLM(lm, cache)
        self._draw = draws.prompt
        self._tables = SlotTables(lm.config, cache.slots, cache.max_len, lm.device)
        self._prefills: CapturedPrefills = NoPrefills()
        if isinstance(lm, SpeechLM):  # reads ids alone
            self._prefills = GraphedPrefills(lm, cache, prefill_batch, draws.prompt, self._tables, capture)
        self._graphs = GraphedSteps(step, cache, draws.step, self._tables, capture)
        self._uncaptured = EagerCalls()
        self._under_way: list[UnderWay] = []

    def advance(self, running: Sequence[Generation]) -> list[Drawn]:
        """As `Steps.advance`: launches what can be, then reads what was launched the time before."""
        self._under_way = [UnderWay(self._current(rows), ids) for rows, ids in self._under_way]
        launched = [*self._step(running), *self._prefill(running)]
        before, self._under_way = self._under_way, launched
        return [drawn for each in before for drawn in each.drawn()]

    def _current(self, rows: list[Row]) -> list[Row]:
        """Rows of sequences that what was read since has not ended or stalled."""
        # The slot of a sequence that has ended is free, or somebody else's already.
        running = [row for row in rows if row.sequence.finish_reason is None]
        for row in running:
            row.sequence.unfed = False
            if row.sequence.stalled:
                self._cache.lengths[row.sequence.slot] -= 1
        return [row for row in running if not row.sequence.stalled]

    def _step(self, running: Sequence[Generation]) -> Iterator[UnderWay]:
        drawing = {row.sequence: row for each in self._under_way for row in each.rows}
        turns = {sequence: self._turn(sequence, drawing.get(sequence)) for sequence in running}
        ready = [sequence for sequence, turn in turns.items() if turn is not Turn.IDLE]
        going_on = self._residents.going_on(ready, running)
        if going_on:
            yield self._launched({sequence: turns[sequence] for sequence in going_on})

    def _turn(self, sequence: Generation, drawing: Row | None) -> Turn:
        """What the next step does for a sequence, with a draw under way or none."""
        if drawing is None:
            ahead = 0
            goes_on = sequence.unfed
        else:
            ahead = 1
            full = drawing.position == self._cache.max_len
            last = len(sequence.tokens) + 1 >= sequence.limits.max_tokens
            goes_on = drawing.turn is Turn.DRAW and not (full or last)
        if not goes_on:
            return Turn.IDLE
        return Turn.FILL if sequence.fills_after(ahead) else Turn.DRAW

    def _launched(self, turns: dict[Generation, Turn]) -> UnderWay:
        slots = [sequence.slot for sequence in turns]
        size = self._graphs.size(max(slots) + 1)
        fed = np.full(size, Turn.IDLE, dtype=np.int64)
        fed[slots] = list(turns.values())
        lengths = self._cache.lengths
        span = self._graphs.span(min(int(lengths[:size].max()) + 1, self._cache.max_len))
        # A stream that waits with a full cache has no next position; it can only end from there.
        ids = self._graphs.run(np.minimum(lengths[:size], span - 1), fed, span)
        lengths[slots] += 1
        rows = [Row(each, each.slot, int(lengths[each.slot]), turn) for each, turn in turns.items()]
        return UnderWay(rows, Fetch(ids))

    def _prefill(self, running: Sequence[Generation]) -> Iterator[UnderWay]:
        captured: list[Prefill] = []
        other: list[Prefill] = []
        for prefill in self._waiting.ready(self._in_turn(running), running):
            (captured if self._prefills.fits([prefill]) else other).append(prefill)
        captured.sort(key=lambda prefill: prefill.start > 0)
        for group in grouped(captured, self._prefills.fits):
            yield self._drawing(group, self._prefills.run(group))
        for group in grouped(other, self._waiting.fits):
            yield self._drawing(group, self._fed(group))

    def _in_turn(self, running: Sequence[Generation]) -> Iterator[Generation]:
        """Those that may be fed now: while others speak, prompts of one pass; texts that go on always."""
        speaking = any(sequence.tokens for sequence in running)
        positions = 0
        for sequence in running:
            waiting = sequence.unfed_prompt
            if speaking and waiting and positions and positions + waiting > STEP_POSITIONS:
                continue
            positions += waiting
            yield sequence

    def _fed(self, group: list[Prefill]) -> Tensor:
        """Ids [sequences] drawn after a pass that is launched operation by operation."""
        if self._prefills.any:
            self._uncaptured.add(f"{max(prefill.positions for prefill in group)} positions of a prompt")
        sequences = [prefill.sequence for prefill in group]
        logits = self._eager.prefill(group)
        slots = integers([sequence.slot for sequence in sequences], logits.device)
        self._tables.set(slots, sequences)
        turns = integers([turn_after_feed(sequence) for sequence in sequences], logits.device)
        return self._draw(logits, slots, turns, self._tables)

    def _drawing(self, group: list[Prefill], ids: Tensor) -> UnderWay:
        rows = [
            Row(each.sequence, place, each.end, turn_after_feed(each.sequence))
            for place, each in enumerate(group)
        ]
        return UnderWay(rows, Fetch(ids))
