"""Steps that run ahead of the host give what the host draws step by step, from the same random numbers."""

from __future__ import annotations

from functools import partial
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lm_utterances import TEXT, finish, said, speak_alone, speak_pieces

from capture_fake import TracingCapture, play_back
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.gpu.cuda_graphs import CapturedGraph
from cosyvoice_runtime.gpu.transfer import Fetch
from cosyvoice_runtime.lm.cache import CachePool
from cosyvoice_runtime.lm.generation import FinishReason, Progress
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.torch import device_steps
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
from cosyvoice_runtime.lm.torch.device_steps import CapturedPasses, GraphedSteps, batch_sizes, span_sizes
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.lm.torch.slot_draws import SlotTables, draw_plain
from examples import examples

ahead = partial(BatchDecoder, capture=play_back)
pytestmark = pytest.mark.usefixtures("same_draws")


requests = st.builds(
    SamplingOptions,
    strategy=st.sampled_from(["ras", "nucleus", "greedy"]),
    repetition_penalty=st.sampled_from([1.0, 1.2]),
    top_k=st.sampled_from([0, 5, 25]),
    temperature=st.sampled_from([0.8, 1.0, 3.0]),
    window=st.sampled_from([3, 10]),
    tau=st.sampled_from([0.0, 0.1, 0.5]),
    seed=st.integers(0, 2**63 - 1),
    max_ratio=st.sampled_from([2.0, 6.0]),
    upstream_min_length_mask=st.booleans(),
    runaway_span=st.sampled_from([4, 100]),
)


@given(st.lists(st.tuples(requests, st.integers(1, 12), st.integers(0, 20)), min_size=1, max_size=4))
@settings(max_examples=examples(12, fresh=50))
def test_utterances_are_those_of_the_host(
    lm: SpeechLM, utterances: list[tuple[SamplingOptions, int, int]]
) -> None:
    """Each begins when the one before is three steps old; some find the cache full."""
    prompts = [Prompt(TEXT[:text], [5], range(speech)) for _, text, speech in utterances]
    expected = []
    for prompt, (options, *_) in zip(prompts, utterances, strict=True):
        expected.append(speak_alone(BatchDecoder, lm, prompt, options, 48))
    together = ahead(lm, len(utterances), 48, prefill_batch=2)
    found = []
    for prompt, (options, *_) in zip(prompts, utterances, strict=True):
        found.append(together.add(prompt, options))
        for _ in range(3):
            together.step()
    finish(together)
    assert list(map(said, found)) == list(map(said, expected))


@given(
    st.lists(st.integers(1, 14), min_size=1, max_size=5),
    st.sampled_from([0, 7, 15, 32]),
    requests,
    st.sampled_from([40, 60, 256]),
)
@settings(max_examples=examples(12, fresh=80))
def test_streams_of_text_are_those_of_the_host(
    lm: SpeechLM, sizes: list[int], num_speech: int, options: SamplingOptions, max_len: int
) -> None:
    """The text comes in pieces, each when the one before is spoken or the cache is full."""

    alone = speak_pieces(BatchDecoder(lm, 1, max_len), sizes, num_speech, options)
    crowd = ahead(lm, 2, max_len)
    crowd.add(Prompt([4, 2]), SamplingOptions(seed=1, min_tokens=9, max_tokens=9))
    assert said(speak_pieces(crowd, sizes, num_speech, options)) == said(alone)


@given(
    st.lists(st.tuples(requests, st.integers(1, 12), st.integers(0, 20)), min_size=2, max_size=5),
    st.integers(8, 40),
    st.randoms(use_true_random=False),
)
@settings(max_examples=examples(12, fresh=50))
def test_utterances_of_which_some_step_while_others_wait_are_those_of_the_host(
    lm: SpeechLM, utterances: list[tuple[SamplingOptions, int, int]], pages: int, chance: Random
) -> None:
    """Some lose their pages meanwhile."""
    prompts = [Prompt(TEXT[:text], [5], range(speech)) for _, text, speech in utterances]
    requested = list(zip(prompts, (options for options, *_ in utterances), strict=True))
    expected = [speak_alone(BatchDecoder, lm, *each, 48) for each in requested]
    together = ahead(lm, len(utterances), 48, prefill_batch=2, pool=CachePool(8, pages))
    found = []
    for each in requested:
        found.append(together.add(*each))
        for _ in range(3):
            together.step_some(chance.sample(found, chance.randint(1, len(found))))
    while together.busy:
        speaking = together.active
        together.step_some(chance.sample(speaking, chance.randint(1, len(speaking))))
        together.step()
    assert list(map(said, found)) == list(map(said, expected))


def test_a_step_of_some_is_of_their_number_and_leaves_the_others_where_they_are(lm, config):
    sizes = []

    def step(tokens, positions, view, span):
        sizes.append(len(tokens))
        return lm.decode_step(tokens, positions, view, span)

    decoder = ahead(lm, 8, 64, passes=CapturedPasses(step), pool=CachePool(8, 64), prefill_batch=8)
    options = SamplingOptions(seed=0, min_tokens=30, max_tokens=30)
    generations = [decoder.add(Prompt([4, 2]), options) for _ in range(8)]
    for _ in range(4):
        decoder.step()
    before = [len(each.tokens) for each in generations]
    sizes.clear()
    for _ in range(5):
        decoder.step_some([generations[6]])
    assert sizes == [1] * 5
    grown = [len(each.tokens) - old for each, old in zip(generations, before, strict=True)]
    assert grown == [1] * 6 + [5] + [1]  # What was under way has come, too.


def test_all_step_where_those_that_should_alone_wait_for_pages(lm):
    """A page is for 8 positions; the last utterance finds none."""
    decoder = ahead(lm, 3, 64, pool=CachePool(8, 8))
    options = SamplingOptions(seed=0, min_tokens=20, max_tokens=20)
    speaking = [decoder.add(Prompt([4, 2]), options) for _ in range(2)]
    for _ in range(18):
        decoder.step()
    waiting = decoder.add(Prompt(TEXT[:20]), options)
    for _ in range(2):
        before = [len(each.tokens) for each in speaking]
        decoder.step_some([waiting])
        assert [len(each.tokens) for each in speaking] == [count + 1 for count in before]
        assert not waiting.tokens


def test_a_step_is_launched_before_the_ids_of_the_last_are_read(
    lm: SpeechLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = []

    class Watched(Fetch):
        def array(self) -> np.ndarray:
            events.append("read")
            return super().array()

    def capture(compute):
        graph = play_back(compute)

        def replay() -> None:
            events.append("launch")
            graph.replay()

        return type(graph)(replay, graph.result, compute)

    monkeypatch.setattr(device_steps, "Fetch", Watched)
    decoder = BatchDecoder(lm, 1, 64, capture=capture)
    decoder.add(Prompt([4, 2]), SamplingOptions(seed=0, min_tokens=5, max_tokens=5))
    finish(decoder)
    prompt, rest = events[:5], events[5:]
    # The prompt, the first token's step, and, before those two tokens are read, that of the second.
    assert prompt == ["launch", "launch", "launch", "read", "read"]
    assert rest == ["launch", "read"] * 2 + ["read"]


def test_who_begins_is_in_the_step_behind_its_prompt(lm: SpeechLM) -> None:
    decoder = ahead(lm, 2, 64)
    first = decoder.add(Prompt([4, 2]), SamplingOptions(seed=0, min_tokens=9, max_tokens=9))
    decoder.step()
    decoder.step()
    second = decoder.add(Prompt([7]), SamplingOptions(seed=1, min_tokens=9, max_tokens=9))
    assert [each.handle for each in decoder.step()] == [first]
    assert [each.handle for each in decoder.step()] == [second, first, second]
    assert [each.handle for each in decoder.step()] == [first, second]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_the_first_two_ids_are_no_more_than_may_be_said(lm: SpeechLM, most: int) -> None:
    options = SamplingOptions(seed=3, min_tokens=most, max_tokens=most)
    decoder = ahead(lm, 1, 64)
    generation = decoder.add(Prompt([7]), options)
    emitted = []
    while decoder.busy:
        emitted += decoder.step()
    assert [token for each in emitted for token in each.tokens] == generation.tokens
    assert [each.finish_reason for each in emitted] == [None] * (most - 1) + [FinishReason.LENGTH]
    assert said(generation) == said(speak_alone(BatchDecoder, lm, Prompt([7]), options, 64))


def test_captured_steps_read_nothing_on_the_host(lm: SpeechLM) -> None:
    """Traced, they repeat the operations alone; what the host decided while capturing stays."""
    decoders = [BatchDecoder(lm, 2, 48, capture=capture) for capture in (TracingCapture(), play_back)]
    spoken = []
    for decoder in decoders:
        generations = [
            decoder.add(Prompt(TEXT[:4]), SamplingOptions(seed=seed, repetition_penalty=1.1))
            for seed in range(2)
        ]
        finish(decoder)
        spoken.append(list(map(said, generations)))
    assert spoken[0] == spoken[1]


def test_a_slot_is_taken_again_while_a_step_of_its_last_owner_is_under_way(lm: SpeechLM) -> None:
    decoder = ahead(lm, 1, 64)
    options = SamplingOptions(seed=3, min_tokens=12, max_tokens=12)
    alone = speak_alone(ahead, lm, Prompt([7]), options, 64)
    first = decoder.add(Prompt(TEXT[:9]), SamplingOptions(seed=1, repetition_penalty=1.3))
    for _ in range(4):
        decoder.step()
    decoder.cancel(first)
    second = decoder.add(Prompt([7]), options)
    emitted = []
    while decoder.busy:
        emitted += decoder.step()
    assert said(second) == said(alone)
    assert [token for each in emitted for token in each.tokens] == second.tokens
    assert {each.handle for each in emitted} == {second}


def test_a_text_stream_that_leaves_while_it_waits_takes_nothing_from_the_next_in_its_slot(
    lm: SpeechLM,
) -> None:
    """A stream that has drawn a fill marker by itself waits with a step under way."""
    options = SamplingOptions(seed=3, min_tokens=12, max_tokens=12)
    alone = speak_alone(ahead, lm, Prompt([7]), options, 64)
    waited = 0
    for seed in range(40):
        decoder = ahead(lm, 1, 64)
        stream = decoder.add_open(Prompt(()), SamplingOptions(seed=seed, temperature=3.0))
        decoder.push_text(stream, TEXT[:5])
        while decoder.busy:
            decoder.step()
        waited += len(stream.tokens) < 15
        decoder.cancel(stream)
        following = decoder.add(Prompt([7]), options)
        finish(decoder)
        assert said(following) == said(alone)
    assert waited


def test_nothing_is_said_after_a_stop(config: SpeechLMConfig, published: dict[str, torch.Tensor]) -> None:
    """The step after it was launched already, and would have drawn speech."""
    bias = published["llm_decoder.bias"].clone()
    bias[-3:] += 4
    lm = SpeechLM.from_tensors(config, {**published, "llm_decoder.bias": bias})
    decoder = ahead(lm, 1, 64)
    for seed in range(20):
        generation = decoder.add(Prompt([4, 2]), SamplingOptions(seed=seed, min_tokens=seed % 3))
        emitted = []
        while decoder.busy:
            emitted += decoder.step()
        assert [token for each in emitted for token in each.tokens] == generation.tokens
        assert emitted[-1] == Progress(generation, [], FinishReason.STOP)
        assert decoder.step() == []


@pytest.mark.parametrize(
    ("slots", "sizes"), [(1, [1]), (2, [1, 2]), (12, [1, 2, 4, 8, 12]), (64, [1, 2, 4, 8, 16, 32, 48, 64])]
)
def test_batches_grow_to_all_slots(slots, sizes):
    assert batch_sizes(slots) == sizes


@pytest.mark.parametrize(("max_len", "sizes"), [(64, [64]), (256, [256]), (700, [256, 512, 700])])
def test_spans_grow_to_all_positions(max_len, sizes):
    assert span_sizes(max_len) == sizes


def test_a_step_takes_the_next_larger_graph(lm, config):
    replayed = []

    def capture(compute):
        result = compute()
        shape = (len(result), len(captured))
        captured.append(shape)
        return CapturedGraph(lambda: replayed.append(shape), result, compute)

    captured = []
    cache = KVCache(config, 5, 300)
    tables = SlotTables(config, 5, 300, lm.device)
    steps = GraphedSteps(lm.decode_step, cache, draw_plain, tables, capture)
    assert [size for size, _ in captured] == [5, 5, 4, 4, 2, 2, 1, 1]
    slots, places = steps.slots(np.array([2, 0]))
    assert (slots.tolist(), places.tolist()) == ([0, 1, 2, 3], [2, 0])
    assert (steps.span(10), steps.span(257)) == (256, 300)
    steps.run(slots, slots, slots * 0, 300)
    assert replayed == [captured[2]]


class Halves:
    """A step that reads as far as sequences go, in two parts of two sequences and more."""

    def __init__(self, lm):
        self.lm, self.spans = lm, []

    def __call__(self, tokens, positions, view, span):
        self.spans.append((len(tokens), span))
        return self.lm.decode_step(tokens, positions, view, span)

    def division(self, batch, span):
        return span > 256 if batch == 1 else 2


def test_spans_that_make_no_difference_share_the_graph_of_the_longest(lm, config):
    step, cache = Halves(lm), KVCache(config, 2, 600)
    steps = GraphedSteps(step, cache, draw_plain, SlotTables(config, 2, 600, lm.device), play_back)
    assert step.spans == [(2, 600), (1, 600), (1, 256)]
    step.spans.clear()
    for count, span in ((2, 256), (1, 512), (1, 256)):
        numbers = torch.arange(count).numpy()
        steps.run(numbers, numbers, numbers * 0, span)
    assert step.spans == [(2, 600), (1, 600), (1, 256)]


def test_steps_are_without_adapters_while_no_taken_slot_has_one(lm, config):
    with_adapters = []

    def step(tokens, positions, view, span):
        with_adapters.append(view.tables.adapters is not None)
        return lm.decode_step(tokens, positions, view, span)

    cache = KVCache(config, 2, 64)
    cache.serve_adapters()
    steps = GraphedSteps(step, cache, draw_plain, SlotTables(config, 2, 64, lm.device), play_back)
    cache.acquire()
    with_adapters.clear()
    for change in (lambda: None, lambda: cache.acquire(2), lambda: cache.release(1)):
        change()
        steps.run(np.arange(2), np.zeros(2, np.int64), np.zeros(2, np.int64), 64)
    assert with_adapters == [False, True, False]


def test_graphs_leave_the_slots_as_they_were(lm, config):
    """They run while they are captured."""
    tables = SlotTables(config, 5, 300, lm.device)
    before = [table.clone() for table in (tables.counts, tables.history, tables.tokens, tables.seen)]
    GraphedSteps(lm.decode_step, KVCache(config, 5, 300), draw_plain, tables, play_back)
    after = tables.counts, tables.history, tables.tokens, tables.seen
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_another_step_is_captured_in_place_of_the_networks_own(lm, config):
    seen = []

    def step(tokens, positions, view, span):
        seen.append((len(tokens), len(positions), len(view.tables.read), span))
        return torch.zeros(len(tokens), config.speech_rows)

    BatchDecoder(lm, 2, 300, capture=play_back, passes=CapturedPasses(step))
    assert seen == [(2, 2, 2, 300), (2, 2, 2, 256), (1, 1, 1, 300), (1, 1, 1, 256)]
