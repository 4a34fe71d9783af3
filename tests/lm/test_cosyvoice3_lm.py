"""CosyVoice3's speech LM: one table for speech and control ids, 200 ids that end the speech."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import torch
from test_text_stream import flat

from capture_fake import TracingCapture
from cosyvoice_runtime.checkpoint.config_lm import OneTableSpeechLMConfig
from cosyvoice_runtime.checkpoint.schema import llm_schema
from cosyvoice_runtime.errors import CheckpointError, InvalidInput
from cosyvoice_runtime.lm.generation import MOST_IN_A_RUN, FinishReason, SilenceFilter
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.text_stream import TextStream
from cosyvoice_runtime.lm.torch import speech_decoder
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
from cosyvoice_runtime.lm.torch.network import SpeechLM
from counted_draws import counted_sample_batch

GREEDY = SamplingOptions(strategy="greedy", min_tokens=6, max_tokens=20, runaway_span=0)
TEXT = list(range(20, 50))


@pytest.fixture(scope="module")
def one_table(config) -> OneTableSpeechLMConfig:
    return OneTableSpeechLMConfig(**asdict(config))


@pytest.fixture(scope="module")
def tensors(one_table) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return {
        name: torch.randn(shape, generator=generator) * (0.3 if len(shape) > 1 else 1)
        for name, shape in llm_schema(one_table).items()
    }


def speak_of_one_that_wants(one_table, tensors, stop: int, options: SamplingOptions):
    """An utterance of a network that wants to end with this id at every step."""
    lm = SpeechLM.from_tensors(one_table, tensors)
    wanted = torch.nn.functional.one_hot(torch.tensor(stop), one_table.speech_rows).float()
    lm.logits = lambda hidden: wanted.expand(*hidden.shape[:-1], -1).clone()
    decoder = BatchDecoder(lm, slots=1, max_len=100)
    generation = decoder.add(Prompt([1, 2]), options)
    while generation.finish_reason is None:
        decoder.step()
    return generation


def test_control_ids_are_rows_of_the_speech_table(one_table, tensors):
    lm = SpeechLM.from_tensors(one_table, tensors)
    assert lm.head.bias is None
    embedded = lm.embed(Prompt([3]).segments())
    table = tensors["speech_embedding.weight"]
    assert torch.equal(embedded[0], table[70])
    assert torch.equal(embedded[2], table[72])
    assert (one_table.eos_id, one_table.fill_id, one_table.speech_rows) == (71, 73, 270)


@pytest.mark.parametrize("stop", [70, 71, 72, 73, 100, 269])
def test_each_of_200_ids_ends_the_speech_but_not_before_the_minimum(one_table, tensors, stop):
    generation = speak_of_one_that_wants(one_table, tensors, stop, GREEDY)
    assert (len(generation.tokens), generation.finish_reason) == (6, FinishReason.STOP)
    assert max(generation.tokens) < 70


@pytest.mark.parametrize(("stop", "length"), [(70, 6), (71, 0)])
def test_published_minimum_masks_sos_alone(one_table, tensors, stop, length):
    options = SamplingOptions(
        strategy="greedy", min_tokens=6, max_tokens=20, runaway_span=0, upstream_min_length_mask=True
    )
    assert len(speak_of_one_that_wants(one_table, tensors, stop, options).tokens) == length


def test_control_ids_are_no_part_of_a_prompt(one_table, tensors):
    decoder = BatchDecoder(SpeechLM.from_tensors(one_table, tensors), slots=1, max_len=100)
    with pytest.raises(InvalidInput, match=r"prompt_speech: \[70\].*ids are 0 to 69"):
        decoder.add(Prompt([1], prompt_speech=[70]))


@pytest.mark.parametrize("name", ["llm_embedding.weight", "llm_decoder.bias"])
def test_tensors_of_the_other_family_are_refused(one_table, tensors, name):
    with pytest.raises(CheckpointError, match=f"{name} is unknown"):
        SpeechLM.from_tensors(one_table, {**tensors, name: torch.zeros(270)})


def test_instruction_is_fed_before_the_blocks_of_a_text_stream(one_table):
    stream = TextStream(one_table, prompt_text=TEXT[:2], lead_text=[7, 8, 9])
    stream.push(TEXT[2:4])
    assert stream.take() is None
    stream.push(TEXT[4:6])
    assert flat(stream.take()) == ["sos", 7, 8, 9, *TEXT[:5]]


def test_speech_of_a_stream_with_an_instruction_waits_for_text(one_table, tensors):
    decoder = BatchDecoder(SpeechLM.from_tensors(one_table, tensors), slots=1, max_len=200)
    generation = decoder.add_open(Prompt((), lead_text=[7, 8, 9]), GREEDY)
    decoder.push_text(generation, [1, 2])
    assert decoder.step() == []
    assert generation.waiting
    decoder.push_text(generation, [3, 4, 5])
    assert decoder.step()
    decoder.end_text(generation)
    while generation.finish_reason is None:
        decoder.step()
    assert generation.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)


def test_captured_steps_draw_the_tokens_of_eager_ones(one_table, tensors, monkeypatch):
    """From the same random numbers, which those of captured steps are counted from."""
    monkeypatch.setattr(speech_decoder, "sample_batch", counted_sample_batch)
    lm, capture, drawn = SpeechLM.from_tensors(one_table, tensors), TracingCapture(), []
    for options in ({}, {"capture": capture, "prefill_batch": 2}):
        decoder = BatchDecoder(lm, slots=2, max_len=60, **options)
        running = [
            decoder.add(Prompt([1, 2, row]), SamplingOptions(seed=row, max_tokens=20)) for row in range(2)
        ]
        while any(generation.finish_reason is None for generation in running):
            decoder.step()
        drawn.append([generation.tokens for generation in running])
    assert drawn[0] == drawn[1]
    assert capture.replays


def test_only_the_start_of_a_long_silence_is_kept():
    keep = SilenceFilter({1, 2})
    assert keep([1, 2, 1, 2]) == [1, 2, 1, 2]
    assert keep([1, 2, 2]) == [1]
    assert keep([9, 2]) == [9, 2]
    assert MOST_IN_A_RUN == 5
    assert SilenceFilter(())([1] * 9) == [1] * 9
