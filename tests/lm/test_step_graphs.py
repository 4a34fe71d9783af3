from __future__ import annotations

import pytest
import torch

from capture_fake import play_back
from cosyvoice_runtime.gpu.cuda_graphs import CapturedGraph
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
from cosyvoice_runtime.lm.torch.device_steps import CapturedPasses, GraphedSteps, batch_sizes, span_sizes
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.slot_draws import SlotTables, draw_plain


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
    assert (steps.size(3), steps.span(10), steps.span(257)) == (4, 256, 300)
    numbers = torch.arange(4).numpy()
    steps.run(numbers, numbers * 0, 300)
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
        steps.run(numbers, numbers * 0, span)
    assert step.spans == [(2, 600), (1, 600), (1, 256)]


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
