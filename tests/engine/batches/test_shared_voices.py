"""Voices that several threads ask for, with a flow that computes when it may."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from coded_waves import CodedWaves, chunk, runtime
from outcomes import Outcomes

from cosyvoice_runtime.engine.batches import PromptTensors, VoiceCache, WaveScheduler, WaveService
from cosyvoice_runtime.flow.page_store import FreePages
from cosyvoice_runtime.flow.voice_flow import FlowPrefix, FlowPrompt, VoiceFlow

TIMEOUT_S = 120.0
PAGES = 10


class GatedFlow(VoiceFlow):
    """A page for each token of a prompt. What is asked for waits in ``asked`` until its gate is open.

    Attributes:
        computed: numbers of tokens, in the order they were begun.
        fails: as many computations fail.
    """

    def __init__(self, pages: FreePages) -> None:
        super().__init__(SimpleNamespace(check_prompt=lambda prompt: prompt, most_prompt_tokens=30))
        self.store = pages
        self.computed: list[int] = []
        self.fails = 0
        self.asked, self.go = threading.Semaphore(0), threading.Event()
        self.go.set()

    num_pages = property(lambda self: self.store.num_pages)
    free_pages = property(lambda self: self.store.free_pages)

    def prefix_pages(self, prompt_tokens: int) -> int:
        return prompt_tokens

    def prefix(self, prompt: FlowPrompt) -> FlowPrefix:
        self.computed.append(len(prompt.tokens))
        self.asked.release()
        assert self.go.wait(TIMEOUT_S)
        if self.fails:
            self.fails -= 1
            raise RuntimeError("this prompt can't be computed")
        pages = self.store.acquire(len(prompt.tokens)) or []
        return FlowPrefix(prompt, pages, None, len(pages))

    def close(self, held: FlowPrefix) -> None:
        self.store.release(held.pages)
        held.pages.clear()


@pytest.fixture
def flow() -> GatedFlow:
    return GatedFlow(FreePages(PAGES))


@pytest.fixture
def voices(flow) -> VoiceCache:
    return VoiceCache(flow, limit=3)


@pytest.fixture
def threads(flow):
    with ThreadPoolExecutor(4) as pool:
        yield pool
        flow.go.set()


def prompt(tokens: int) -> PromptTensors:
    return PromptTensors(
        np.arange(tokens, dtype=np.int32), np.zeros((2 * tokens, 4), np.float32), np.ones(3, np.float32)
    )


def begun(threads: ThreadPoolExecutor, flow: GatedFlow, voices: VoiceCache, key: str, tokens: int) -> Future:
    """A voice that somebody computes until ``flow.go``."""
    flow.go.clear()
    future = threads.submit(voices.acquire, key, prompt(tokens))
    assert flow.asked.acquire(timeout=TIMEOUT_S)
    return future


def test_a_voice_that_several_want_is_computed_once(flow, voices, threads):
    first = begun(threads, flow, voices, "a", 3)
    others = [threads.submit(voices.acquire, "a", tensors) for tensors in (prompt(3), None)]
    assert voices.computes("a", None)
    flow.go.set()
    assert {future.result(TIMEOUT_S) for future in (first, *others)} == {first.result()}
    assert flow.computed == [3]
    assert (first.result().users, voices.pages, flow.free_pages) == (3, 3, PAGES - 3)


def test_a_known_voice_waits_for_no_other(flow, voices, threads):
    known = voices.acquire("known", prompt(2))
    assert flow.asked.acquire(timeout=TIMEOUT_S)
    other = begun(threads, flow, voices, "a", 3)
    assert voices.acquire("known", None) is known
    voices.release(known)
    assert not voices.computes("known", None)
    assert voices.usage().voice_pages == 2
    assert not other.done()
    flow.go.set()
    assert other.result(TIMEOUT_S).prefix.tokens_done == 3


def test_one_that_fails_fails_alone_and_the_next_tries_again(flow, voices, threads):
    flow.fails = 1
    first = begun(threads, flow, voices, "a", 3)
    second = threads.submit(voices.acquire, "a", None)
    flow.go.set()
    with pytest.raises(RuntimeError, match="can't be computed"):
        first.result(TIMEOUT_S)
    assert second.result(TIMEOUT_S).prefix.tokens_done == 3
    assert second.result().users == 1
    assert flow.computed == [3, 3]


@pytest.mark.parametrize("fails", [0, 1])
def test_who_awaits_a_voice_is_told_whatever_comes_of_it(flow, voices, threads, fails):
    flow.fails, told = fails, threading.Event()
    assert not voices.awaits("a", told.set)
    first = begun(threads, flow, voices, "a", 3)
    assert voices.awaits("a", told.set)
    assert not told.is_set()
    flow.go.set()
    assert told.wait(TIMEOUT_S)
    assert bool(first.exception(TIMEOUT_S)) == bool(fails)
    assert not voices.awaits("a", told.set)
    assert voices.computes("a", None) == bool(fails)


def test_a_voice_forgotten_while_it_is_computed_is_freed_with_its_last_utterance(flow, voices, threads):
    first = begun(threads, flow, voices, "a", 3)
    assert [len(voices), voices.pages] == [1, 0]
    flow_of_others = GatedFlow(flow.store)
    for key in "bcd":
        voices.release(voices.acquire(key, prompt(1), flow_of_others))
    flow.go.set()
    voice = first.result(TIMEOUT_S)
    assert voice.start is voice.prefix
    assert (voice.prefix.tokens_done, voices.pages, flow.free_pages) == (3, 3, PAGES - 6)
    voices.release(voice)
    assert flow.free_pages == PAGES - 3


def test_a_voice_in_use_is_not_taken_from_who_is_about_to_speak(flow, voices):
    voice = voices.acquire("a", prompt(3))
    for key in "bcd":
        voices.acquire(key, prompt(1))
    assert len(voice.start.pages) == 3


def test_a_voice_whose_pages_others_took_meanwhile_is_computed_by_the_next(flow, voices, threads):
    first = begun(threads, flow, voices, "a", 3)
    taken = flow.store.acquire(PAGES - 1)
    flow.go.set()
    voice = first.result(TIMEOUT_S)
    assert voice.start is voice.prompt
    flow.store.release(taken)
    assert voices.acquire("a", None).prefix.tokens_done == 3


def test_pages_of_a_voice_are_left_until_somebody_speaks_with_it(flow, voices):
    assert [voices.pages_to_take("a", tensors) for tensors in (prompt(3), None)] == [3, 0]
    assert [voices.can_speak("a", tensors) for tensors in (prompt(3), None)] == [True, False]
    assert voices.pages_to_take("a", prompt(10_000)) == flow.flow.most_prompt_tokens
    voice = voices.acquire("a", prompt(3))
    assert (voices.speaking, voices.pages_left, voices.pages_to_take("a", None)) == (1, PAGES - 3, 0)
    voices.release(voice)
    assert (voices.speaking, voices.pages_left, voices.pages_to_take("a", None)) == (0, PAGES, 3)
    voices._drop_prefix(voice)
    assert voices.can_speak("a", None)
    assert voices.pages_to_take("a", None) == 3


def test_who_speaks_with_a_forgotten_voice_still_speaks(voices):
    kept = voices.acquire("a", prompt(1))
    for key in "bcd":
        voices.release(voices.acquire(key, prompt(2)))
    assert ("a" in voices._voices, voices.speaking) == (False, 1)
    voices.release(kept)
    assert voices.speaking == 0


def test_a_voice_that_fails_has_no_speaker(flow, voices):
    flow.fails = 1
    with pytest.raises(RuntimeError):
        voices.acquire("a", prompt(3))
    assert voices.speaking == 0


def test_the_last_who_leaves_frees_the_voices(flow, voices):
    voices.enter()
    voices.enter()
    voices.release(voices.acquire("a", prompt(3)))
    voices.leave()
    assert voices.usage().pages_in_use == 3
    voices.leave()
    assert flow.free_pages == PAGES
    assert len(voices) == 0


class SpokenBy(CodedWaves):
    """Networks of one scheduler."""

    def __init__(self, pages: FreePages) -> None:
        super().__init__()
        self.flow = GatedFlow(pages)


@pytest.fixture
def pair(flow):
    """Two schedulers with one store of voices, each with networks of its own; to be closed by the test."""
    networks = [SpokenBy(flow.store) for _ in range(2)]
    voices = VoiceCache(flow, limit=3)
    services = [WaveService(each, voices, idle_timeout_s=60) for each in networks]
    schedulers = [
        WaveScheduler(service, runtime(each, 4), 8, 1.0)
        for service, each in zip(services, networks, strict=True)
    ]
    yield *networks, *schedulers
    for each in networks:
        each.flow.go.set()
    for scheduler in schedulers:
        scheduler.close()
    assert flow.free_pages == PAGES


def say(scheduler, outcomes: Outcomes, name: str, tokens: list[int], key: str, size: int) -> None:
    said = chunk(name, tokens, last=True, voice_key=key, prompt=prompt(size))
    scheduler.submit(said, outcomes.of(name))


def both_want_a_voice(pair, outcomes: Outcomes) -> None:
    """The first scheduler computes it, and may not end yet."""
    slow, _, first, second = pair
    slow.flow.go.clear()
    say(first, outcomes, "a", [1], "new", 3)
    assert slow.flow.asked.acquire(timeout=TIMEOUT_S)
    say(second, outcomes, "b", [2], "new", 3)


def test_a_scheduler_speaks_with_others_while_one_waits_for_a_voice(pair, outcomes):
    slow, other, _, second = pair
    both_want_a_voice(pair, outcomes)
    say(second, outcomes, "c", [3], "another", 2)
    assert outcomes.wait(1)
    say(second, outcomes, "d", [4], "another", 2)
    assert outcomes.wait(2)
    assert outcomes.names == ["c", "d"]
    slow.flow.go.set()
    assert outcomes.wait(4)
    assert sorted(outcomes.delivered) == [("a", [1]), ("b", [2]), ("c", [3]), ("d", [4])]
    assert slow.flow.computed == [3]
    assert other.flow.computed == [2]


def test_who_waited_computes_the_voice_when_the_first_fails(pair, outcomes):
    slow, other, *_ = pair
    slow.flow.fails = 1
    both_want_a_voice(pair, outcomes)
    slow.flow.go.set()
    assert outcomes.wait(2)
    assert sorted(outcomes.delivered) == [("a", "this prompt can't be computed"), ("b", [2])]
    assert other.flow.computed == [3]


def test_who_waits_for_a_voice_can_be_cancelled(pair, outcomes):
    slow, other, _, second = pair
    both_want_a_voice(pair, outcomes)
    second.submit(chunk("b", cancel=True), outcomes.of("cancel"))
    assert outcomes.wait(2)
    assert outcomes.names == ["b", "cancel"]
    slow.flow.go.set()
    assert outcomes.wait(3)
    assert other.batches == []


def test_at_the_end_those_who_wait_for_a_voice_are_still_spoken(pair, outcomes):
    slow, *_, second = pair
    both_want_a_voice(pair, outcomes)
    closing = threading.Thread(target=second.close)
    closing.start()
    slow.flow.go.set()
    closing.join(TIMEOUT_S)
    assert outcomes.wait(2)
    assert sorted(outcomes.delivered) == [("a", [1]), ("b", [2])]
