"""Utterances that go on from tokens which another server has drawn."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lm_utterances import TEXT, MakeDecoder, finish, said, speak_alone, speak_pieces

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.generation import FinishReason
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
from cosyvoice_runtime.lm.torch.network import SpeechLM
from examples import examples

PROMPT = Prompt(TEXT[:8], [5], range(9))
LONG = 96
options = st.builds(
    SamplingOptions,
    strategy=st.sampled_from(["ras", "nucleus", "greedy"]),
    repetition_penalty=st.sampled_from([1.0, 1.2]),
    seed=st.integers(0, 2**63 - 1),
    max_ratio=st.sampled_from([3.0, 6.0]),
    runaway_span=st.sampled_from([4, 100]),
)


@given(options, st.integers(0, 60))
@settings(max_examples=examples(6, fresh=60))
def test_speech_goes_on_as_if_it_had_never_been_cut(
    make: MakeDecoder, lm: SpeechLM, sampling: SamplingOptions, cut: int
) -> None:
    uncut = speak_alone(make, lm, PROMPT, sampling, LONG)
    decoder = make(lm, 2, LONG)
    decoder.add(Prompt([4, 2]), SamplingOptions(seed=1, min_tokens=9, max_tokens=9))
    decoder.step()
    generation = decoder.add(dataclasses.replace(PROMPT, spoken=uncut.tokens[:cut]), sampling)
    told = []
    while generation.finish_reason is None:
        told += [id_ for each in decoder.step() if each.handle is generation for id_ in each.tokens]
    assert said(generation) == said(uncut)
    assert told == uncut.tokens[cut:]


@given(st.lists(st.integers(1, 14), min_size=1, max_size=4), options, st.integers(0, 80))
@settings(max_examples=examples(6, fresh=60))
def test_text_in_pieces_goes_on_from_given_tokens(
    make: MakeDecoder, lm: SpeechLM, sizes: list[int], sampling: SamplingOptions, cut: int
) -> None:
    """Captured steps lay the text out by whole blocks of speech, and go on otherwise if a block had fewer."""
    uncut = speak_pieces(make(lm, 1, 256), sizes, 7, sampling)
    again = speak_pieces(make(lm, 1, 256), sizes, 7, sampling, uncut.tokens[:cut])
    assert again.tokens[:cut] == uncut.tokens[:cut]
    assert again.finish_reason is not None
    is_host = make is BatchDecoder
    if is_host or again.sampler.history[: len(uncut.sampler.history)] == uncut.sampler.history:
        assert said(again) == said(uncut)


def test_given_tokens_stand_whatever_is_drawn(make: MakeDecoder, lm: SpeechLM) -> None:
    """As on a GPU whose batch rounds otherwise: the seed alone gives another speech."""
    other = SamplingOptions(seed=2, min_tokens=20, max_tokens=20)
    spoken = speak_alone(make, lm, PROMPT, dataclasses.replace(other, seed=1)).tokens[:12]
    assert speak_alone(make, lm, PROMPT, other).tokens[:12] != spoken
    generation = speak_alone(make, lm, dataclasses.replace(PROMPT, spoken=spoken), other)
    assert generation.tokens[:12] == spoken
    assert len(generation.tokens) == 20


@pytest.mark.parametrize(("cut", "reason"), [(5, FinishReason.LENGTH), (4, FinishReason.REPETITION)])
def test_given_tokens_end_an_utterance_as_drawn_ones_do(make, lm, cut, reason) -> None:
    sampling = SamplingOptions(seed=1, max_tokens=5, min_tokens=5, runaway_span=4)
    spoken = [3, 4, 5, 6, 7] if cut == 5 else [3, 3, 3, 3]
    decoder = make(lm, 1, LONG)
    generation = decoder.add(dataclasses.replace(PROMPT, spoken=spoken), sampling)
    finish(decoder)
    assert said(generation) == (spoken, reason)
    assert decoder.free_slots == 1


def test_given_token_that_the_speech_lm_does_not_know_is_refused(make, lm) -> None:
    for wrong in (-1, lm.config.speech_tokens):
        with pytest.raises(InvalidInput, match=r"spoken_tokens.* ids are 0 to 69"):
            make(lm, 1, LONG).add(dataclasses.replace(PROMPT, spoken=[1, wrong]))
