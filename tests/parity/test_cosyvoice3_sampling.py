"""Repetition-aware sampling over CosyVoice3's rows, and the filter of its silent tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from goldens import COSYVOICE3, Case

from cosyvoice_runtime import families
from cosyvoice_runtime.lm import sampling
from cosyvoice_runtime.lm.generation import SilenceFilter
from cosyvoice_runtime.lm.sampling import SamplerState, SamplingOptions, nucleus_sizes
from cosyvoice_runtime.lm.torch import speech_decoder

CASES = COSYVOICE3.cases("ras_sampling")
SILENCE = dict(COSYVOICE3.settings("silent_tokens"))
SILENT = SILENCE.pop("silent_tokens")


def state_of(case: Case) -> SamplerState:
    state = SamplerState(SamplingOptions(seed=case.settings["torch_seed"]))
    state.history = list(case.settings["decoded"])
    return state


@pytest.mark.parametrize("case", CASES, ids=str)
def test_draw_equals_reference(case: Case) -> None:
    probs, _ = sampling.top_candidates(case["logp"][None].numpy(), SamplingOptions().top_k)
    assert int(nucleus_sizes(probs, [state_of(case)])[0]) == case.settings["nucleus_size"]
    logits = case["logp"][None]
    assert sampling.sample_batch(logits.numpy(), [state_of(case)]) == [case.settings["result"]]
    assert speech_decoder.sample_batch(logits, [state_of(case)]) == [case.settings["result"]]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_noise_is_drawn_in_the_reference_order(case: Case) -> None:
    generator = torch.Generator().manual_seed(case.settings["torch_seed"])
    for name in ("q1", "q2"):
        if name in case:
            drawn = torch.empty(case[name].shape).exponential_(generator=generator)
            np.testing.assert_array_equal(drawn, case[name])


def test_silent_tokens_are_the_published_ones() -> None:
    assert families.COSYVOICE3.silent_tokens == set(SILENT)


@pytest.mark.parametrize("name", SILENCE)
@pytest.mark.parametrize("group", [1, 3, 100])
def test_runs_of_silence_are_thinned_as_in_the_reference(name: str, group: int) -> None:
    drawn, keep = SILENCE[name]["from_llm"], SilenceFilter(families.COSYVOICE3.silent_tokens)
    heard = [keep(drawn[start : start + group]) for start in range(0, len(drawn), group)]
    assert [token for tokens in heard for token in tokens] == SILENCE[name]["to_flow"]
