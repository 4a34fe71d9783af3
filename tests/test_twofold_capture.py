"""What is captured for a whole GPU and for a part of it replays where its user is."""

from __future__ import annotations

import torch

from capture_fake import play_back
from cosyvoice_runtime.cuda_graphs import TwofoldCapture


def test_replay_is_that_of_the_place_and_so_is_the_result():
    on_part = False
    value = torch.zeros(1)
    graph = TwofoldCapture(play_back, play_back, lambda: on_part)(lambda: value + 1)
    value.fill_(1)
    graph.replay()
    whole = graph.result
    assert whole.item() == 2
    on_part = True
    value.fill_(2)
    graph.replay()
    assert graph.result is not whole
    assert graph.result.item() == 3
    assert whole.item() == 2
