"""Steps whose ids are drawn where the logits are: the next one is launched before this one's ids are read.

The host sees an id one step late. A prompt is launched before the step, which goes on with what the prompt
will have drawn if its text is whole: its first two ids come together. What was launched for a sequence that
ended meanwhile, or that asked for text, is dropped: the device has marked its slot and changed nothing
(`Count.LIVE`), and what was written into the cache is overwritten before it is attended to. A stream of text
that has drawn the fill marker is fed when that has been read, a step later than where ids are drawn on the
host; nobody else waits for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from cosyvoice_runtime.gpu.cuda_graphs import EagerCalls, GraphCapture
from cosyvoice_runtime.gpu.transfer import Fetch, integers
from cosyvoice_runtime.lm.generation import Drawn, Generation
from cosyvoice_runtime.lm.prefills import Prefill, Prefills, Residents, grouped
from cosyvoice_runtime.lm.sampling import IntArray
from cosyvoice_runtime.lm.torch.cached_lm import CachedLM
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.lm.torch.prefill_graphs import (
    CapturedPrefills,
    GraphedPrefills,
    LogitsPrefill,
    NoPrefills,
)
from cosyvoice_runtime.lm.torch.slot_draws import DrawSlots, SlotTables, Turn, turn_after_feed
from cosyvoice_runtime.lm.torch.speech_decoder import SpeechDecoder
from cosyvoice_runtime.lm.torch.step_graphs import GraphedSteps, LogitsStep

STEP_POSITIONS = 512
"""Of prompts that are fed between two steps while others speak, who wait; a longer prompt is fed alone."""


class UnderWay(NamedTuple):
    """A pass that was launched, and whose ids nobody has read.

    Attributes:
        sequences: whose draws are under way.
        places: [n] of their ids among those that are fetched.
        positions: of the cache, where each id is fed if it is speech.
    """

    sequences: list[Generation]
    places: IntArray
    positions: list[int]
    ids: Fetch

    def without(self, gone: Collection[Generation]) -> UnderWay:
        """The pass for the other sequences alone."""
        kept = [row for row, sequence in enumerate(self.sequences) if sequence not in gone]
        return UnderWay(
            [self.sequences[row] for row in kept],
            self.places[kept],
            [self.positions[row] for row in kept],
            self.ids,
        )

    def drawn(self) -> Iterator[Drawn]:
        """Wait for the ids, if any sequence still wants them."""
        if self.sequences:
            ids = self.ids.array()[self.places].tolist()
            yield from zip(self.sequences, ids, self.positions, strict=True)


class StepDraws(NamedTuple):
    """The sampler after a prompt, and the one in a captured step."""

    prompt: DrawSlots
    step: DrawSlots


class DeviceSteps:
    """Replays captured steps, one ahead of what the host knows.

    Args:
        prefill_batch: prompts fed in one pass at most.
        step: computes the logits of captured steps.
        draws: what draws.
        prefill: computes the logits of captured prompts; None: the network does.
    """

    def __init__(
        self,
        lm: SpeechDecoder,
        cache: KVCache,
        prefill_batch: int,
        capture: GraphCapture,
        step: LogitsStep,
        draws: StepDraws,
        prefill: LogitsPrefill | None = None,
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
            self._prefills = GraphedPrefills(
                lm, cache, prefill_batch, draws.prompt, self._tables, capture, prefill
            )
        self._graphs = GraphedSteps(step, cache, draws.step, self._tables, capture)
        self._uncaptured = EagerCalls()
        self._under_way: list[UnderWay] = []
        # Sequences with two draws under way: of their prompts, and of the step behind those.
        self._begun: set[Generation] = set()

    def advance(self, running: Sequence[Generation]) -> list[Drawn]:
        """As `Steps.advance`: launches what can be, then reads what was launched the time before."""
        self._under_way = [self._current(each) for each in self._under_way]
        prompts = list(self._prefill(running))
        begins = {each for prompt in prompts for each in prompt.sequences if each.stream is None}
        step = list(self._step(running, begins))
        self._begun = begins & {sequence for each in step for sequence in each.sequences}
        before, self._under_way = self._under_way, [*prompts, *step]
        return [drawn for each in before for drawn in each.drawn()]

    def _current(self, launched: UnderWay) -> UnderWay:
        """The pass without sequences that have ended or stalled since."""
        for sequence in launched.sequences:
            sequence.unfed = False
        gone = {each for each in launched.sequences if each.stalled or each.finish_reason is not None}
        if not gone:
            return launched
        for sequence in gone:
            # The slot of a sequence that has ended is free, or somebody else's already.
            if sequence.finish_reason is None:
                self._cache.lengths[sequence.slot] -= 1
        return launched.without(gone)

    def _step(self, running: Sequence[Generation], begins: Collection[Generation]) -> Iterator[UnderWay]:
        """One step for all that can go on, also where a prompt is launched before it."""
        drawing = {sequence for each in self._under_way for sequence in each.sequences}.union(begins)
        turns = {  # the others', mostly all, is another draw
            each: _turn(each, (each in drawing) + (each in self._begun))
            for each in running
            if each not in drawing or len(each.tokens) + 2 >= each.plain_until
        }
        idle = {each for each, turn in turns.items() if turn is Turn.IDLE}
        going_on = self._residents.going_on([each for each in running if each not in idle], running)
        if going_on:
            filling = [each for each, turn in turns.items() if turn is Turn.FILL and each in going_on]
            yield self._launched(going_on, filling)

    def _launched(self, sequences: list[Generation], filling: list[Generation]) -> UnderWay:
        slots = self._residents.slots(sequences)
        size = self._graphs.size(int(slots.max()) + 1)
        fed = np.zeros(size, dtype=np.int64)  # idle
        fed[slots] = Turn.DRAW
        for sequence in filling:
            fed[sequence.slot] = Turn.FILL
        lengths = self._cache.lengths
        span = self._graphs.span(min(int(lengths[:size].max()) + 1, self._cache.max_len))
        # A stream that waits with a full cache has no next position; it can only end from there.
        ids = self._graphs.run(np.minimum(lengths[:size], span - 1), fed, span)
        positions = lengths[slots] + 1
        lengths[slots] = positions
        return UnderWay(sequences, slots, positions.tolist(), Fetch(ids))

    def _prefill(self, running: Sequence[Generation]) -> Iterator[UnderWay]:
        hungry = self._residents.hungry(running)
        if not hungry:
            return
        captured: list[Prefill] = []
        other: list[Prefill] = []
        for prefill in self._waiting.ready(self._in_turn(hungry, running), running):
            (captured if self._prefills.fits([prefill]) else other).append(prefill)
        captured.sort(key=lambda prefill: prefill.start > 0)
        for group in grouped(captured, self._prefills.fits):
            yield self._drawing(group, self._prefills.run(group))
        for group in grouped(other, self._waiting.fits):
            yield self._drawing(group, self._fed(group))

    def _in_turn(self, hungry: Sequence[Generation], running: Sequence[Generation]) -> Iterator[Generation]:
        """Sequences that may be fed now: while others speak, prompts of one pass; texts that go on always."""
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
        if self._prefills.any:
            self._uncaptured.add(f"{max(prefill.positions for prefill in group)} positions of a prompt")
        sequences = [prefill.sequence for prefill in group]
        logits = self._eager.prefill(group)
        slots = integers([sequence.slot for sequence in sequences], logits.device)
        self._tables.set(slots, sequences)
        turns = integers([turn_after_feed(sequence) for sequence in sequences], logits.device)
        return self._draw(logits, slots, turns, self._tables)

    def _drawing(self, group: list[Prefill], ids: Tensor) -> UnderWay:
        sequences = [each.sequence for each in group]
        return UnderWay(sequences, np.arange(len(group)), [each.end for each in group], Fetch(ids))


def _turn(sequence: Generation, drawing: int) -> Turn:
    """Work of the next step for a sequence, with so many draws under way."""
    if drawing:
        last = len(sequence.tokens) + drawing >= sequence.limits.max_tokens
        goes_on = not (last or sequence.must_fill)  # else it is the fill marker that is under way
    else:
        goes_on = sequence.unfed
    if not goes_on:
        return Turn.IDLE
    return Turn.FILL if sequence.fills_after(drawing) else Turn.DRAW
