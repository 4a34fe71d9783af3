from __future__ import annotations

import pytest
import torch

from cosyvoice_runtime.cuda_graphs import CapturedGraph
from cosyvoice_runtime.lm.network import KVCache
from cosyvoice_runtime.lm.step_graphs import GraphedSteps, batch_sizes, span_sizes


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
    steps = GraphedSteps(lm, KVCache(config, 5, 300), capture)
    assert [size for size, _ in captured] == [5, 5, 4, 4, 2, 2, 1, 1]
    assert (steps.size(3), steps.span(10), steps.span(257)) == (4, 256, 300)
    tokens = torch.arange(4).numpy()
    steps.run(tokens, tokens, 300)
    assert replayed == [captured[2]]


def test_another_step_is_captured_in_place_of_the_networks_own(lm, config):
    def step(tokens, positions, view, span):
        return torch.stack([tokens, positions, torch.full_like(tokens, view.data.shape[2] * 1000 + span)])

    steps = GraphedSteps(
        lm, KVCache(config, 2, 300), lambda compute: CapturedGraph(lambda: None, compute(), compute), step
    )
    assert steps.run(torch.zeros(2).numpy(), torch.zeros(2).numpy(), 256).tolist() == [
        [0, 0],
        [0, 0],
        [2256] * 2,
    ]
