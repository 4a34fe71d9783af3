"""Repetition-aware sampling against the reference's recorded draws."""

from __future__ import annotations

import goldens
import numpy as np
import pytest
import torch
from goldens import Compare

from cosyvoice_runtime.lm import sampling
from cosyvoice_runtime.lm.sampling import SamplerState, SamplingOptions, nucleus_sizes
from cosyvoice_runtime.lm.torch import speech_decoder

CASES = goldens.cases("ras_sampling")


def state_of(case: goldens.Case) -> SamplerState:
    state = SamplerState(SamplingOptions(seed=case.settings["torch_seed"]))
    state.history = list(case.settings["decoded"])
    return state


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nucleus_equals_reference(case: goldens.Case, compare: Compare) -> None:
    probs, ids = sampling.top_candidates(case["logp"][None].numpy(), SamplingOptions().top_k)
    size = int(nucleus_sizes(probs, [state_of(case)])[0])
    assert size == case.settings["nucleus_size"]
    np.testing.assert_array_equal(ids[0, :size], case["nucleus_ids"])
    compare("nucleus_probs", torch.from_numpy(probs[0, :size]), case["nucleus_probs"], 1e-6)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_repeat_is_recognised(case: goldens.Case) -> None:
    assert state_of(case).repeats(case.settings["first_pick"]) == case.settings["resampled"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_draw_equals_reference(case: goldens.Case) -> None:
    logits = case["logp"][None]
    assert sampling.sample_batch(logits.numpy(), [state_of(case)]) == [case.settings["result"]]
    assert speech_decoder.sample_batch(logits, [state_of(case)]) == [case.settings["result"]]


def test_batch_of_all_cases_draws_every_result() -> None:
    logits = torch.stack([case["logp"] for case in CASES])
    results = [case.settings["result"] for case in CASES]
    assert sampling.sample_batch(logits.numpy(), [state_of(case) for case in CASES]) == results
    assert speech_decoder.sample_batch(logits, [state_of(case) for case in CASES]) == results


@pytest.mark.parametrize("case", CASES, ids=str)
def test_noise_is_drawn_in_the_reference_order(case: goldens.Case) -> None:
    generator = torch.Generator().manual_seed(case.settings["torch_seed"])
    for name in ("q1", "q2"):
        if name in case:
            drawn = torch.empty(case[name].shape).exponential_(generator=generator)
            np.testing.assert_array_equal(drawn, case[name])
