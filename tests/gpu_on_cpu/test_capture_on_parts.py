"""What is captured for a whole GPU and for parts of it replays where its user is."""

from __future__ import annotations

import torch

from capture_fake import play_back
from cosyvoice_runtime.gpu.cuda_graphs import CapturedGraph, CaptureOnParts


def test_replay_is_that_of_the_place_and_so_is_the_result():
    place = 0
    value = torch.zeros(1)
    graph = CaptureOnParts([play_back] * 3, lambda: place)(lambda: value + 1)
    results = []
    for place in (0, 2, 1):  # noqa: B007
        value += 1
        graph.replay()
        results.append(graph.result)
    assert [result.item() for result in results] == [2, 3, 4]
    assert len({id(result) for result in results}) == 3


def test_every_place_is_warmed_up():
    warm_ups = []
    CaptureOnParts([play_back] * 3, lambda: 0)(lambda: torch.zeros(1), lambda: warm_ups.append(1))
    assert len(warm_ups) == 3


class Unrun:
    """Captures without computing."""

    def unrun(self, compute):
        return CapturedGraph(compute, "of the third", compute)


def test_place_that_is_captured_later_is_stood_in_for_by_the_one_before():
    place, rests = 2, []
    capture = CaptureOnParts([play_back] * 2, lambda: place)
    value = torch.zeros(1)
    graphs = [capture(lambda: value + 1), capture(lambda: value + 2)]
    for graph in graphs:
        graph.replay()
    assert [graph.result.item() for graph in graphs] == [1, 2]
    capture.add(Unrun(), lambda: rests.append(1))
    assert len(rests) == 2
    for graph in graphs:
        graph.replay()
    assert [graph.result for graph in graphs] == ["of the third"] * 2


def test_what_nobody_replays_any_more_is_captured_no_further():
    capture, rests = CaptureOnParts([play_back] * 2, lambda: 0), []
    for _ in range(3):
        capture(lambda: torch.zeros(1))

    def rest() -> None:
        rests.append(1)
        capture.end()

    capture.add(Unrun(), rest)
    assert len(rests) == 1
