"""Utterances that join, wait, fail and leave without touching each other."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lm_utterances import (
    POISON,
    Joining,
    MakeDecoder,
    assert_said,
    finish,
    joining,
    speak_alone,
    speak_joining,
)

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.cache import CacheFullError
from cosyvoice_runtime.lm.generation import FinishReason, Generation
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.torch.network import SpeechLM
from examples import examples


def options(seed: int = 0, **changes: Any) -> SamplingOptions:
    return SamplingOptions(seed=seed, **changes)


@given(joining(most_text=6, most_steps=10), st.sampled_from([1, 3]))
@settings(max_examples=examples(12, fresh=60))
def test_tokens_do_not_depend_on_neighbours(
    make: MakeDecoder, lm: SpeechLM, utterances: list[Joining], prefill_batch: int
) -> None:
    decoder = make(lm, len(utterances), 128, prefill_batch=prefill_batch)
    requests = [
        (Prompt(range(1, 1 + text), [5], range(speech)), options(seed, strategy=strategy, max_ratio=3))
        for seed, (_, text, speech, strategy, _) in enumerate(utterances)
    ]
    generations = speak_joining(decoder, utterances, requests, steps=13)
    assert decoder.free_slots == len(utterances)
    for index, generation in generations.items():
        assert_said(generation, speak_alone(make, lm, *requests[index]))


def test_emissions_are_the_tokens_in_order(make: MakeDecoder, lm: SpeechLM) -> None:
    decoder = make(lm, 2, 128)
    generations = [decoder.add(Prompt([4, 2]), options(seed, max_tokens=12)) for seed in range(2)]
    emitted: dict[Generation, list[int]] = {generation: [] for generation in generations}
    reasons = {}
    while decoder.busy:
        for progress in decoder.step():
            emitted[progress.handle] += progress.tokens
            if progress.finish_reason is not None:
                reasons[progress.handle] = progress.finish_reason
    assert list(emitted.values()) == [generation.tokens for generation in generations]
    assert reasons == {generation: generation.finish_reason for generation in generations}


def test_add_without_a_free_slot_fails_and_disturbs_nothing(make: MakeDecoder, lm: SpeechLM) -> None:
    decoder = make(lm, 1, 64)
    generation = decoder.add(Prompt([4, 2]), options(max_tokens=9))
    with pytest.raises(CacheFullError):
        decoder.add(Prompt([4, 2]), options())
    finish(decoder)
    assert generation.tokens == speak_alone(make, lm, Prompt([4, 2]), options(max_tokens=9)).tokens


def test_cancel_frees_the_slot_at_once(make: MakeDecoder, lm: SpeechLM) -> None:
    decoder = make(lm, 1, 64)
    first = decoder.add(Prompt([4, 2]), options())
    decoder.step()
    decoder.cancel(first)
    assert decoder.free_slots == 1
    second = decoder.add(Prompt([7]), options(3, max_tokens=9))
    assert {progress.handle for _ in range(3) for progress in decoder.step()} == {second}
    assert first.finish_reason is FinishReason.CANCELLED


def test_cancel_after_the_end_has_no_effect(make: MakeDecoder, lm: SpeechLM) -> None:
    decoder = make(lm, 1, 64)
    generation = decoder.add(Prompt([4]), options(max_tokens=1, min_tokens=1))
    finish(decoder)
    decoder.cancel(generation)
    assert generation.finish_reason is FinishReason.LENGTH
    assert decoder.free_slots == 1


def test_non_finite_logits_end_that_utterance_alone(make: MakeDecoder, poisoned: SpeechLM) -> None:
    decoder = make(poisoned, 3, 64)
    prompts = [Prompt([4, 2]), Prompt([4, POISON]), Prompt([6])]
    generations = [decoder.add(prompt, options(max_tokens=9)) for prompt in prompts]
    finish(decoder)
    assert generations[1].finish_reason is FinishReason.ERROR
    assert (
        str(generations[1].error)
        == "speech_lm: NaN or infinity in the logits; ./run.sh check names the layer"
    )
    assert generations[1].tokens == []
    for index in (0, 2):
        alone = speak_alone(make, poisoned, prompts[index], options(max_tokens=9))
        assert generations[index].tokens == alone.tokens


def test_slot_of_a_failed_utterance_serves_the_next(make: MakeDecoder, poisoned: SpeechLM) -> None:
    decoder = make(poisoned, 1, 64)
    decoder.add(Prompt([POISON] * 30), options())
    finish(decoder)
    generation = decoder.add(Prompt([4, 2]), options(max_tokens=9))
    finish(decoder)
    assert generation.tokens == speak_alone(make, poisoned, Prompt([4, 2]), options(max_tokens=9)).tokens


@pytest.mark.parametrize(
    ("prompt", "field"),
    [
        (Prompt([]), "text"),
        (Prompt([90]), "text"),
        (Prompt([-1]), "text"),
        (Prompt([1], prompt_text=[90]), "prompt_text"),
        (Prompt([1], prompt_speech=[70]), "prompt_speech"),
        (Prompt([1] * 63), "prompt"),
    ],
)
def test_bad_prompt_is_named_and_takes_no_slot(
    make: MakeDecoder, lm: SpeechLM, prompt: Prompt, field: str
) -> None:
    decoder = make(lm, 1, 64)
    with pytest.raises(InvalidInput) as error:
        decoder.add(prompt, options())
    assert error.value.field == field
    assert decoder.free_slots == 1


@pytest.mark.parametrize("field", ["min_tokens", "max_tokens"])
def test_wanted_length_must_fit(make: MakeDecoder, lm: SpeechLM, field: str) -> None:
    decoder = make(lm, 1, 16)
    with pytest.raises(InvalidInput) as error:
        decoder.add(Prompt([1] * 4), options(**{field: 12}))
    assert error.value.field == field
    decoder.add(Prompt([1] * 4), options(**{field: 11}))


def test_full_cache_ends_with_length(make: MakeDecoder, lm: SpeechLM) -> None:
    decoder = make(lm, 1, 16)
    generation = decoder.add(Prompt([1] * 4), options(min_ratio=20.0))
    finish(decoder)
    assert generation.finish_reason is FinishReason.LENGTH
    assert len(generation.tokens) == 11


def test_no_stop_below_the_minimum(
    make: MakeDecoder, config: SpeechLMConfig, published: dict[str, torch.Tensor]
) -> None:
    bias = published["llm_decoder.bias"].clone()
    bias[-3:] += 100
    eager_to_stop = SpeechLM.from_tensors(config, {**published, "llm_decoder.bias": bias})
    correct = speak_alone(make, eager_to_stop, Prompt([1, 2, 3]), options(min_ratio=3.0))
    assert (len(correct.tokens), correct.finish_reason) == (9, FinishReason.STOP)
    upstream = speak_alone(make, eager_to_stop, Prompt([1, 2, 3]), options(upstream_min_length_mask=True))
    assert (len(upstream.tokens), upstream.finish_reason) == (0, FinishReason.STOP)


def test_runaway_is_ended(
    make: MakeDecoder, config: SpeechLMConfig, published: dict[str, torch.Tensor]
) -> None:
    bias = published["llm_decoder.bias"].clone()
    bias[33] += 100
    stuck = SpeechLM.from_tensors(config, {**published, "llm_decoder.bias": bias})
    generation = speak_alone(make, stuck, Prompt([1] * 10), options(strategy="greedy"), max_len=256)
    assert (generation.tokens, generation.finish_reason) == ([33] * 100, FinishReason.REPETITION)


def test_seed_of_an_unseeded_utterance_repeats_it(make: MakeDecoder, lm: SpeechLM) -> None:
    prompt, unseeded = Prompt([4, 2]), SamplingOptions(max_tokens=20, min_tokens=20)
    first = speak_alone(make, lm, prompt, unseeded)
    assert (
        speak_alone(make, lm, prompt, dataclasses.replace(unseeded, seed=first.seed)).tokens == first.tokens
    )


def test_idle_decoder_has_nothing_to_do(make: MakeDecoder, lm: SpeechLM) -> None:
    decoder = make(lm, 2, 32)
    assert not decoder.busy
    assert decoder.step() == []
