"""Utterances whose keys and values lie in shared pages say what they say with a slot of their own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lm_utterances import (
    POISON,
    TEXT,
    Joining,
    MakeDecoder,
    assert_said,
    finish,
    joining,
    said,
    speak_alone,
    speak_joining,
    speak_pieces,
)

from capture_fake import TracingCapture, play_back
from cosyvoice_runtime.flow.page_store import FIRST_PAGE
from cosyvoice_runtime.lm.cache import CachePool
from cosyvoice_runtime.lm.generation import FinishReason, Generation
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.torch import device_steps
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
from cosyvoice_runtime.lm.torch.kv_cache import PagedKVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM
from examples import examples

MAX_LEN = 64
PLENTY = CachePool(8, 80)
SCARCE = CachePool(8, 8)
"""One utterance of 64 positions fills it."""
pytestmark = pytest.mark.usefixtures("same_draws")


def alone(lm: SpeechLM, prompt: Prompt, options: SamplingOptions) -> tuple[list[int], FinishReason | None]:
    """With a slot of its own, drawn on the host."""
    return said(speak_alone(BatchDecoder, lm, prompt, options, MAX_LEN))


def nothing_is_held(decoder: BatchDecoder) -> bool:
    use = decoder.cache_use
    return (use.held, use.without) == (0, 0)


def test_pages_of_the_last_one_are_zeros_before_anybody_comes(lm: SpeechLM) -> None:
    decoder = BatchDecoder(lm, 2, MAX_LEN, play_back, pool=PLENTY)
    decoder.add(Prompt(TEXT[:4]), SamplingOptions(seed=1, max_ratio=4))
    decoder.step()
    cache = decoder._cache
    assert isinstance(cache, PagedKVCache)
    assert cache.data[:, :, FIRST_PAGE:].any()
    finish(decoder)
    assert nothing_is_held(decoder)
    assert not cache.data[:, :, FIRST_PAGE:].any()


@pytest.mark.parametrize("pool", [PLENTY, SCARCE], ids=["plenty", "scarce"])
@given(joining(most_text=20, most_steps=30), st.sampled_from([1, 3]))
@settings(max_examples=examples(6, fresh=60))
def test_pages_change_no_token(
    make: MakeDecoder, lm: SpeechLM, pool: CachePool, utterances: list[Joining], prefill_batch: int
) -> None:
    decoder = make(lm, len(utterances), MAX_LEN, prefill_batch=prefill_batch, pool=pool)
    requests = [
        (
            Prompt(TEXT[:text], [5], range(speech)),
            SamplingOptions(seed=seed, strategy=strategy, max_ratio=4, repetition_penalty=1.1),
        )
        for seed, (_, text, speech, strategy, _) in enumerate(utterances)
    ]
    generations = speak_joining(decoder, utterances, requests, steps=45)
    assert nothing_is_held(decoder)
    for index, generation in generations.items():
        assert_said(generation, speak_alone(BatchDecoder, lm, *requests[index], MAX_LEN))


def wants(tokens: int, seed: int = 0) -> SamplingOptions:
    return SamplingOptions(seed=seed, min_tokens=tokens, max_tokens=tokens)


@pytest.mark.parametrize("prefill_batch", [1, 4])
def test_who_loses_its_pages_goes_on_where_it_was(
    make: MakeDecoder, lm: SpeechLM, prefill_batch: int
) -> None:
    """Six utterances of 44 positions in a pool of 64: all end, and what was fed twice is counted."""
    decoder = make(lm, 6, MAX_LEN, prefill_batch=prefill_batch, pool=SCARCE)
    prompt = Prompt(TEXT[:2])
    generations = [decoder.add(prompt, wants(40, seed)) for seed in range(6)]
    finish(decoder)
    assert [said(each) for each in generations] == [alone(lm, prompt, wants(40, seed)) for seed in range(6)]
    assert decoder.cache_use.evictions > 0
    assert decoder.cache_use.recomputed > 0
    assert nothing_is_held(decoder)


def test_a_pool_for_all_takes_from_nobody(make: MakeDecoder, lm: SpeechLM) -> None:
    decoder = make(lm, 6, MAX_LEN, pool=CachePool(8, 6 * 8))
    for seed in range(6):
        decoder.add(Prompt(TEXT[:20]), wants(40, seed))
    finish(decoder)
    assert (decoder.cache_use.evictions, decoder.cache_use.recomputed) == (0, 0)


def test_the_oldest_is_never_interrupted(make: MakeDecoder, lm: SpeechLM) -> None:
    decoder = make(lm, 4, MAX_LEN, pool=SCARCE)
    oldest = decoder.add(Prompt(TEXT[:2]), wants(60))
    for seed in range(3):
        decoder.add(Prompt(TEXT[:2]), wants(50, seed))
    decoder.step()
    while oldest.finish_reason is None:
        before = len(oldest.tokens)
        emitted = decoder.step()
        # One more each time; the first two may come together.
        assert len(oldest.tokens) - before in ((1,) if before else (1, 2)), emitted
    assert decoder.cache_use.evictions > 0


def test_nobody_gets_in_before_one_who_waits_for_many_pages(make: MakeDecoder, lm: SpeechLM) -> None:
    """Short ones would fit again and again; the long one has its turn when those before it have ended."""
    decoder = make(lm, 3, MAX_LEN, pool=CachePool(8, 9))
    first = decoder.add(Prompt(TEXT[:2]), wants(30))
    decoder.step()
    long = decoder.add(Prompt(TEXT[:55]), wants(5))
    short = decoder.add(Prompt(TEXT[:2]), wants(3))
    while first.finish_reason is None:
        decoder.step()
        assert said(long) == said(short) == ([], None)
    while long.finish_reason is None:
        decoder.step()
    assert said(long) == alone(lm, Prompt(TEXT[:55]), wants(5))
    finish(decoder)
    assert said(short) == alone(lm, Prompt(TEXT[:2]), wants(3))


def test_an_utterance_without_pages_can_be_cancelled(make: MakeDecoder, lm: SpeechLM) -> None:
    decoder = make(lm, 3, MAX_LEN, pool=SCARCE)
    speaking = decoder.add(Prompt(TEXT[:40]), wants(15))
    decoder.step()
    waiting = [decoder.add(Prompt(TEXT[:40]), wants(15)) for _ in range(2)]
    decoder.step()
    assert decoder.cache_use.without == 2
    decoder.cancel(waiting[0])
    assert (decoder.free_slots, decoder.cache_use.without) == (1, 1)
    finish(decoder)
    assert said(waiting[1]) == said(speaking) == alone(lm, Prompt(TEXT[:40]), wants(15))


def test_what_a_failed_utterance_left_reaches_nobody(make: MakeDecoder, poisoned: SpeechLM) -> None:
    """Not in pages of its own that others take, nor in the page where padding is written."""
    decoder = make(poisoned, 3, MAX_LEN, pool=SCARCE, prefill_batch=3)
    for round_ in range(3):
        prompts = [Prompt([POISON] * 20), Prompt([4, 2]), Prompt([6] * (3 + round_))]
        generations = [decoder.add(prompt, wants(9)) for prompt in prompts]
        finish(decoder)
        assert generations[0].finish_reason is FinishReason.ERROR
        assert list(map(said, generations[1:])) == [
            alone(poisoned, prompt, wants(9)) for prompt in prompts[1:]
        ]


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.sampled_from([0, 7, 15]),
    st.integers(0, 2**20),
    st.lists(st.integers(2, 40), min_size=1, max_size=4),
)
@settings(max_examples=examples(6, fresh=80))
def test_streams_of_text_lose_pages_and_say_the_same(
    make: MakeDecoder,
    lm: SpeechLM,
    sizes: list[int],
    num_speech: int,
    seed: int,
    crowd: list[int],
) -> None:
    """Others come before and between its pieces, and take its pages while it waits."""
    options = SamplingOptions(seed=seed, max_ratio=4)
    expected = speak_pieces(BatchDecoder(lm, 1, MAX_LEN), sizes, num_speech, options)
    decoder = make(lm, 1 + 2 * len(crowd), MAX_LEN, pool=SCARCE)
    others = [decoder.add(Prompt(TEXT[:3]), wants(tokens, tokens)) for tokens in crowd]
    push = decoder.push_text

    def push_in_company(generation: Generation, ids: Sequence[int]) -> None:
        push(generation, ids)
        if decoder.free_slots:
            others.append(decoder.add(Prompt(TEXT[:30]), wants(20, len(others))))

    decoder.push_text = push_in_company  # type: ignore[method-assign]
    assert said(speak_pieces(decoder, sizes, num_speech, options)) == said(expected)
    for tokens, other in zip(crowd, others, strict=False):
        assert said(other) == alone(lm, Prompt(TEXT[:3]), wants(tokens, tokens))
    assert nothing_is_held(decoder)


def test_a_stream_goes_on_wherever_in_a_block_it_lost_its_pages(make: MakeDecoder, lm: SpeechLM) -> None:
    """Also where the block was complete, so that the fill marker follows without a draw."""
    options = SamplingOptions(seed=1, max_tokens=40)

    def spoken(decoder: BatchDecoder, older: int | None) -> tuple[Generation, int]:
        if older is not None:
            decoder.add(Prompt(TEXT[:older]), wants(MAX_LEN - older - 2))
            decoder.step()
        stream = decoder.add_open(Prompt(()), options)
        decoder.push_text(stream, TEXT[:5])
        complete = 0
        while stream.finish_reason is None:
            if stream.waiting:
                decoder.push_text(stream, TEXT[5:8])
                decoder.end_text(stream)
            decoder.step()
            complete += bool(stream.lost and stream.must_fill)
        return stream, complete

    expected, _ = spoken(BatchDecoder(lm, 1, MAX_LEN), None)
    one_block = range(20, 20 + sum(lm.config.mix_ratio))
    found = [spoken(make(lm, 2, MAX_LEN, pool=SCARCE), older) for older in one_block]
    assert {tuple(stream.tokens) for stream, _ in found} == {tuple(expected.tokens)}
    assert any(complete for _, complete in found)


def test_a_stream_that_waits_for_text_makes_room(make: MakeDecoder, lm: SpeechLM) -> None:
    """It holds most of the pool, and its text never comes."""
    decoder = make(lm, 2, MAX_LEN, pool=SCARCE)
    stream = decoder.add_open(Prompt((), TEXT[:5], range(30)), SamplingOptions(seed=1))
    decoder.push_text(stream, TEXT[:11])
    finish(decoder)
    assert stream.waiting
    assert decoder.cache_use.held > 5
    other = decoder.add(Prompt(TEXT[:20]), wants(30))
    finish(decoder)
    assert said(other) == alone(lm, Prompt(TEXT[:20]), wants(30))
    assert decoder.cache_use == (8, 0, 1, 1, 0)


def waiting_stream(decoder: BatchDecoder, speech: int) -> Generation:
    """It has said what it can of its text."""
    stream = decoder.add_open(Prompt((), TEXT[:5], range(speech)), SamplingOptions(seed=1, max_tokens=37))
    decoder.push_text(stream, TEXT[:11])
    finish(decoder, 60)
    assert stream.waiting
    return stream


def held_by_a_waiting_stream(make: MakeDecoder, lm: SpeechLM) -> int:
    decoder = make(lm, 1, MAX_LEN, pool=SCARCE)
    waiting_stream(decoder, 5)
    return decoder.cache_use.held


def test_who_grows_takes_from_one_that_waits_for_text(make: MakeDecoder, lm: SpeechLM) -> None:
    """Though it came earlier; who speaks is not interrupted."""
    decoder = make(lm, 2, MAX_LEN, pool=CachePool(8, held_by_a_waiting_stream(make, lm) + 2))
    stream = waiting_stream(decoder, 5)
    other = decoder.add(Prompt(TEXT[:2]), wants(50))
    decoder.step()
    assert decoder.cache_use.evictions == 0
    finish(decoder)
    assert said(other) == alone(lm, Prompt(TEXT[:2]), wants(50))
    assert stream.lost
    assert (decoder.cache_use.evictions, decoder.cache_use.recomputed) == (1, 0)


def test_who_comes_in_leaves_a_page_for_each_that_may_grow(make: MakeDecoder, lm: SpeechLM) -> None:
    """So one of two that wait for text makes room, although a page is free, and not both."""
    held = held_by_a_waiting_stream(make, lm)
    decoder = make(lm, 4, MAX_LEN, pool=CachePool(8, 2 * held + 3))
    first, second = waiting_stream(decoder, 5), waiting_stream(decoder, 5)
    decoder.add(Prompt(TEXT[:2]), wants(8))
    decoder.step()
    assert (decoder.cache_use.held, decoder.cache_use.evictions) == (2 * held + 1, 0)
    decoder.add(Prompt(TEXT[:2]), wants(2))
    decoder.step()
    assert decoder.cache_use.evictions == 1
    assert (bool(first.lost), bool(second.lost)) == (False, True)


def test_one_that_waits_for_text_without_pages_delays_no_prompt(
    lm: SpeechLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts for nothing among the positions that a step feeds while others speak."""
    monkeypatch.setattr(device_steps, "STEP_POSITIONS", 16)
    decoder = BatchDecoder(lm, 4, MAX_LEN, pool=CachePool(8, 9), capture=play_back)
    stream = waiting_stream(decoder, 20)
    speaker = decoder.add(Prompt(TEXT[:2]), wants(60))
    for _ in range(20):
        decoder.step()
    assert stream.lost
    later = decoder.add(Prompt(TEXT[:2]), wants(2))
    for _ in range(4):
        decoder.step()
    assert (len(later.tokens), speaker.finish_reason, stream.waiting) == (2, None, True)


def test_a_text_that_goes_on_is_fed_beside_a_prompt_that_waits_for_room(
    lm: SpeechLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_steps, "STEP_POSITIONS", 16)
    decoder = BatchDecoder(lm, 4, MAX_LEN, pool=CachePool(8, 9), capture=play_back)
    speaker = decoder.add(Prompt(TEXT[:2]), wants(60))
    for _ in range(3):
        decoder.step()
    blocked = decoder.add(Prompt(TEXT[:55]), wants(2))
    stream = decoder.add_open(Prompt(()), SamplingOptions(seed=1, max_tokens=40))
    decoder._cache.pages.reserve(stream.slot, 1)  # as if it had been fed before the prompt came
    for _ in range(2):
        decoder.step()
    assert blocked.pending
    decoder.push_text(stream, TEXT[:5])
    for _ in range(4):
        decoder.step()
    assert stream.tokens
    assert (blocked.tokens, speaker.finish_reason) == ([], None)


def test_captured_steps_over_pages_read_nothing_on_the_host(lm: SpeechLM) -> None:
    """Traced, they repeat the operations alone: a table is what it is when they are replayed."""
    spoken = []
    for capture in (TracingCapture(), play_back):
        decoder = BatchDecoder(lm, 3, 32, capture=capture, pool=CachePool(8, 5))
        generations = [decoder.add(Prompt(TEXT[:4]), wants(15, seed)) for seed in range(3)]
        finish(decoder)
        spoken.append(list(map(said, generations)))
    assert spoken[0] == spoken[1]


def test_pools_of_less_than_one_utterance_are_refused(lm: SpeechLM) -> None:
    with pytest.raises(ValueError, match="3 pages of 16 positions hold no slot of 64"):
        BatchDecoder(lm, 2, MAX_LEN, pool=CachePool(16, 3))


@pytest.mark.parametrize("page", [7, 16, 64])
def test_pages_of_any_size_say_the_same(make: MakeDecoder, lm: SpeechLM, page: int) -> None:
    """Of which a slot needs no whole number, or only one."""
    decoder = make(lm, 2, MAX_LEN, pool=CachePool.of(2 * MAX_LEN, page))
    generations = [
        decoder.add(Prompt(TEXT[:20]), SamplingOptions(seed=seed, max_ratio=9)) for seed in range(2)
    ]
    finish(decoder)
    assert list(map(said, generations)) == [
        alone(lm, Prompt(TEXT[:20]), SamplingOptions(seed=seed, max_ratio=9)) for seed in range(2)
    ]
