"""Rows of attention on ONNX Runtime against those of PyTorch's network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from cosyvoice_runtime.lm import Prompt, RunningBatch, SamplingOptions
from cosyvoice_runtime.lm.onnx.speech_lm import open_batch
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder

HEADS = [(1, 5), (0, 0), (2, 3), (1, 2)]
MAX_LEN, SLOTS = 96, 3
PROMPTS = [
    Prompt([5, 6, 7], prompt_text=[89, 0], prompt_speech=[0, 69, 41, 41]),
    Prompt([1, 1]),
    Prompt(list(range(30)), lead_text=[8, 9], prompt_speech=range(20)),
]


def rows_of(batch: RunningBatch, prompts: Sequence[Prompt], followed: Sequence[int]) -> dict[int, np.ndarray]:
    """Rows of utterances that begin one step after the other."""
    generations = []
    for number, prompt in enumerate(prompts):
        generations.append(batch.add(prompt, SamplingOptions(seed=number, min_tokens=12, max_tokens=16)))
        if number in followed:
            batch.follow(generations[-1], prompt.text_positions)
        batch.step()
    while batch.active:
        batch.step()
    spoken = {number: generations[number] for number in followed}
    return {number: each.rows.take(len(each.tokens)) for number, each in spoken.items()}


@pytest.mark.parametrize("followed", [[0, 1, 2], [2]])
def test_rows_equal_those_of_torch(lm, open_onnx, followed):
    found = rows_of(open_batch(open_onnx(heads=HEADS), SLOTS, MAX_LEN), PROMPTS, followed)
    wanted = rows_of(BatchDecoder(lm, SLOTS, MAX_LEN, heads=HEADS), PROMPTS, followed)
    for number in followed:
        assert len(found[number]) >= 12
        np.testing.assert_allclose(found[number], wanted[number], atol=1e-5)
        np.testing.assert_allclose(found[number].sum(1), 1, atol=1e-5)


def test_tokens_are_those_of_a_graph_without_queries(open_onnx):
    spoken = []
    for heads in ((), HEADS):
        batch = open_batch(open_onnx(heads=heads), SLOTS, MAX_LEN)
        generations = [batch.add(prompt, SamplingOptions(seed=4, max_tokens=20)) for prompt in PROMPTS]
        while batch.active:
            batch.step()
        spoken.append([each.tokens for each in generations])
    assert spoken[0] == spoken[1]


def test_graph_without_queries_brings_no_rows(open_onnx):
    batch = open_batch(open_onnx(), 1, MAX_LEN)
    generation = batch.add(PROMPTS[0], SamplingOptions(seed=1, max_tokens=3))
    assert batch.follow(generation, PROMPTS[0].text_positions) is None
