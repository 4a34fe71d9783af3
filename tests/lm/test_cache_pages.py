"""Pages of the cache: none is lost or given twice, and nobody reads what is another's."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    rule,
    run_state_machine_as_test,
)

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.flow.page_store import FIRST_PAGE, WASTE_PAGE, ZERO_PAGE
from cosyvoice_runtime.lm.cache import CachePool, CacheSlots, PageLedger
from cosyvoice_runtime.lm.generation import FinishReason, Generation
from cosyvoice_runtime.lm.prefills import Prefill
from cosyvoice_runtime.lm.prompt import Prompt, prompt_codes
from cosyvoice_runtime.lm.running_batch import HostSteps, RunningBatch, fed_slots
from cosyvoice_runtime.lm.sampling import NOT_FINITE, SamplingOptions
from cosyvoice_runtime.lm.torch.kv_cache import CacheView, KVCache, PagedKVCache
from examples import examples

SLOTS, MAX_LEN, PAGE = 5, 60, 8
STREAMED = SamplingOptions(seed=1, max_tokens=30)
FAILS = 77
"""Text id of utterances that fail."""


def check(pages: PageLedger) -> None:
    """Each page is free or held by one slot, whose row of the table begins with what it holds."""
    owned = [row[:held] for row, held in zip(pages.table, pages.held, strict=True)]
    rest = [row[held:] for row, held in zip(pages.table, pages.held, strict=True)]
    numbers = np.concatenate(owned)
    assert len(set(numbers.tolist())) == len(numbers) == pages.total - pages.free
    assert ((numbers >= FIRST_PAGE) & (numbers < FIRST_PAGE + pages.total)).all()
    assert (np.concatenate(rest) == ZERO_PAGE).all()
    assert pages.holding == set(np.flatnonzero(pages.held).tolist())
    assert (pages.room == np.minimum(pages.held * pages.page, MAX_LEN)).all()


@given(st.lists(st.tuples(st.integers(0, SLOTS - 1), st.integers(0, MAX_LEN)), max_size=60))
@settings(max_examples=examples(60, fresh=400))
def test_pages_are_free_or_held_by_one(orders: list[tuple[int, int]]) -> None:
    """0 positions: what the slot has comes back."""
    pages, came_back = PageLedger(SLOTS, MAX_LEN, CachePool(PAGE, 13)), set[int]()
    for slot, positions in orders:
        before, free = pages.table.copy(), pages.free
        held = int(pages.held[slot])
        if not positions:
            came_back |= set(before[slot, :held].tolist())
            pages.release(slot)
            assert pages.free == free + held
        elif pages.reserve(slot, positions):
            assert pages.held[slot] == max(held, -(-positions // PAGE))
            assert (pages.table[slot, :held] == before[slot, :held]).all()
        else:
            assert free < -(-positions // PAGE) - held
            assert (pages.table == before).all()
        others = np.arange(SLOTS) != slot
        assert (pages.table[others] == before[others]).all()
        check(pages)
    assert set(pages.take_returned()) == came_back
    assert pages.take_returned() == []


class CodedCache(CacheSlots):
    """Holds what was fed itself, in pages."""

    def __init__(self, pool: CachePool | None) -> None:
        super().__init__(SLOTS, MAX_LEN, pool)
        self.rows = np.full((FIRST_PAGE + self.pages.total, self.pages.page), -1, np.int64)

    @property
    def bytes(self) -> int:
        return self.rows.nbytes

    def wipe(self, slot: int) -> None:
        """Its pages are cleared when they come back."""

    def clear_returned(self) -> None:
        self.rows[self.pages.take_returned()] = -1

    def store(self, slot: int, start: int, codes: Sequence[int]) -> None:
        for position, code in enumerate(codes, start):
            page = self.pages.table[slot, position // self.pages.page]
            assert page != ZERO_PAGE, "it was given no page"
            self.rows[page, position % self.pages.page] = code

    def content(self, slot: int, length: int) -> list[int]:
        return self.rows[self.pages.table[slot]].flatten()[:length].tolist()


class CodedNetwork:
    """Its next token follows from all that a slot holds: a wrong position is heard in all that follow."""

    def __init__(self, config: SpeechLMConfig, cache: CodedCache) -> None:
        self._config, self._cache = config, cache

    def decode(self, slots: Sequence[int], tokens: Sequence[int]) -> Any:
        self._cache.clear_returned()
        fed, positions = fed_slots(self._cache, slots, tokens)
        base = self._config.text_vocab_size + 2
        for slot in slots:
            self._cache.store(slot, positions[slot], [base + fed[slot]])
        return np.array([self._next(slot) for slot in slots])

    def prefill(self, group: Sequence[Prefill]) -> Any:
        self._cache.clear_returned()
        for prefill in group:
            self._cache.store(
                prefill.sequence.slot, prefill.start, prompt_codes(prefill.segments, self._config)
            )
            self._cache.lengths[prefill.sequence.slot] = prefill.end
        return np.array([self._next(prefill.sequence.slot) for prefill in group])

    def sample(self, logits: Any, states: Any, blocked: Any) -> list[int]:
        return [int(each) for each in logits]

    def _next(self, slot: int) -> int:
        content = self._cache.content(slot, self._cache.lengths[slot])
        assert -1 not in content, "it holds a position that was never fed"
        code = zlib.crc32(np.array(content).tobytes())
        if FAILS in content and code % 4 == 0:
            return NOT_FINITE
        return code % self._config.speech_tokens


def opened(config: SpeechLMConfig, pool: CachePool | None, prefill_batch: int = 1) -> RunningBatch:
    cache = CodedCache(pool)
    steps = HostSteps(CodedNetwork(config, cache), cache, prefill_batch, config.fill_id)
    return RunningBatch(config, cache, steps)


class Requests(RuleBasedStateMachine):
    """Utterances come, get text, leave and fail, in a pool that is often used up."""

    config: SpeechLMConfig
    whole = Bundle("whole")
    open_ones = Bundle("open_ones")

    def __init__(self) -> None:
        super().__init__()
        self.batch = opened(self.config, CachePool(PAGE, 9), prefill_batch=2)
        self.pages = self.batch._cache.pages
        self.requests: list[tuple[Generation, Prompt, SamplingOptions]] = []
        self.texts: dict[Generation, list[int]] = {}

    @property
    def full(self) -> bool:
        return not self.batch.free_slots

    @rule(target=whole, text=st.integers(1, 40), tokens=st.integers(1, 19), fails=st.booleans())
    def add(self, text: int, tokens: int, fails: bool) -> Generation | None:
        if self.full:
            return None
        prompt = Prompt([FAILS if fails else 3, *range(text - 1)])
        options = SamplingOptions(seed=1, min_tokens=tokens, max_tokens=tokens)
        generation = self.batch.add(prompt, options)
        self.requests.append((generation, prompt, options))
        return generation

    @rule(target=open_ones)
    def open(self) -> Generation | None:
        if self.full:
            return None
        generation = self.batch.add_open(Prompt(()), STREAMED)
        self.texts[generation] = []
        return generation

    @rule(generation=open_ones, size=st.integers(1, 9))
    def push(self, generation: Generation | None, size: int) -> None:
        if generation is not None and generation.finish_reason is None:
            ids = [(len(self.texts[generation]) + i) % 70 for i in range(size)]
            self.texts[generation] += ids
            self.batch.push_text(generation, ids)

    @rule(generation=consumes(open_ones))
    def end(self, generation: Generation | None) -> None:
        if generation is not None and generation.finish_reason is None:
            if self.texts[generation]:
                self.batch.end_text(generation)
            else:
                self.batch.cancel(generation)

    @rule(generation=st.one_of(whole, open_ones))
    def cancel(self, generation: Generation | None) -> None:
        if generation is not None:
            self.batch.cancel(generation)

    @rule(steps=st.integers(1, 12))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            self.batch.step()
            check(self.pages)

    @invariant()
    def pages_are_whole(self) -> None:
        check(self.pages)

    def teardown(self) -> None:
        """All come to their end, and say what they say alone."""
        for generation, text in self.texts.items():
            if generation.finish_reason is None and not generation.stream.ended:
                self.batch.end_text(generation) if text else self.batch.cancel(generation)
        for _ in range(2000):
            if not self.batch.busy:
                break
            self.batch.step()
        assert self.batch.active == []
        assert (self.pages.free, self.batch.free_slots) == (self.pages.total, SLOTS)
        for generation, prompt, options in self.requests:
            single = opened(self.config, None)
            self._compare(generation, single, single.add(prompt, options))
        for generation, text in self.texts.items():
            single = opened(self.config, None)
            alone = single.add_open(Prompt(()), STREAMED)
            if text:
                single.push_text(alone, text)
                single.end_text(alone)
                self._compare(generation, single, alone)

    def _compare(self, found: Generation, batch: RunningBatch, alone: Generation) -> None:
        while batch.busy:
            batch.step()
        if found.finish_reason is FinishReason.CANCELLED:
            assert found.tokens == alone.tokens[: len(found.tokens)]
        else:
            assert (found.tokens, found.finish_reason) == (alone.tokens, alone.finish_reason)


def test_requests_of_all_kinds_share_pages_and_come_to_their_end(config: SpeechLMConfig) -> None:
    machine = type("ConfiguredRequests", (Requests,), {"config": config})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples(60, fresh=400), stateful_step_count=40)
    )


def paged(config: SpeechLMConfig, lengths: dict[int, int], seed: int) -> tuple[PagedKVCache, KVCache]:
    """Random keys and values in slots of these lengths: in shared pages that lie anyhow, and in own slots."""
    generator = torch.Generator().manual_seed(seed)
    cache = PagedKVCache(config, SLOTS, MAX_LEN, CachePool(PAGE, SLOTS * 8))
    for length in range(1, MAX_LEN + 1, PAGE):  # in turns, so that no slot has pages in a row
        for slot in lengths:
            assert cache.pages.reserve(slot, min(length, lengths[slot] or 1))
    for slot, length in lengths.items():
        assert cache.pages.reserve(slot, max(length, 1))
    cache.prepare()
    whole = KVCache(config, SLOTS, MAX_LEN)
    for slot, length in lengths.items():
        shape = (config.num_layers, 2, 1, length, config.num_kv_heads, config.head_dim)
        filled = torch.randn(shape, generator=generator)
        positions = torch.arange(length)[None]
        for each in (cache, whole):
            places = each.view(slot, slot + 1).at(positions, None)
            for layer in range(config.num_layers):
                places.write(layer, *filled[layer])
    return cache, whole


def content(view: CacheView, span: int) -> torch.Tensor:
    """[layers, 2, B, kv_heads, span, D]"""
    places = view.at(torch.zeros(len(view.tables.read), 1, dtype=torch.int64), span)
    return torch.stack([torch.stack(places.read(layer)) for layer in range(len(view.data))])


@given(
    st.dictionaries(st.integers(0, SLOTS - 1), st.integers(0, MAX_LEN), min_size=1), st.integers(1, MAX_LEN)
)
@settings(max_examples=examples(30, fresh=200))
def test_pages_are_read_and_written_as_slots_are(
    config: SpeechLMConfig, lengths: dict[int, int], span: int
) -> None:
    cache, whole = paged(config, lengths, span)
    assert torch.equal(content(cache.view(0, SLOTS), span), content(whole.view(0, SLOTS), span))
    some = torch.tensor(sorted(lengths, reverse=True))
    assert torch.equal(content(cache.gathered(some), span), content(whole.gathered(some), span))


def test_what_padding_writes_is_read_by_nobody(config: SpeechLMConfig) -> None:
    """A slot without pages, and one at the end of its last page, write into the page for waste."""
    cache, _ = paged(config, {1: PAGE, 2: 3}, seed=0)
    before = content(cache.view(0, SLOTS), MAX_LEN)
    places = cache.view(0, 2).at(torch.tensor([[0, 9], [PAGE, MAX_LEN - 1]]), None)
    nothing = torch.full((2, 2, config.num_kv_heads, config.head_dim), torch.nan)
    places.write(1, nothing, nothing)
    assert torch.equal(content(cache.view(0, SLOTS), MAX_LEN), before)
    assert cache.data[1, :, WASTE_PAGE].isnan().any()


def test_a_page_is_zeros_when_it_is_taken_again(config: SpeechLMConfig) -> None:
    cache, _ = paged(config, {0: 20, 1: 12}, seed=0)
    cache.data[:, :, cache.pages.table[0, :3].tolist()] = torch.nan
    kept = content(cache.view(1, 2), 12)
    cache.pages.release(0)
    assert cache.pages.reserve(3, MAX_LEN)
    cache.prepare()
    assert not content(cache.view(3, 4), MAX_LEN).any()
    assert torch.equal(content(cache.view(1, 2), 12), kept)


def test_a_pool_holds_at_least_the_positions_asked_for() -> None:
    assert [CachePool.of(positions, 16).pages for positions in (16, 17, 160)] == [1, 2, 10]


def test_memory_is_that_of_the_pages(config: SpeechLMConfig) -> None:
    """And of two that nobody holds."""
    few, more = (PagedKVCache(config, SLOTS, MAX_LEN, CachePool(PAGE, pages)) for pages in (8, 20))
    assert more.bytes - few.bytes == 12 * few.bytes // (FIRST_PAGE + 8)
