"""Text streaming inside a running batch."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lm_utterances import TEXT, MakeDecoder, finish

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.generation import FinishReason, Generation, Progress, TokenLimits
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.text_stream import StreamState, TextStream
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
from cosyvoice_runtime.lm.torch.network import SpeechLM
from examples import examples


def run_stream(
    decoder: BatchDecoder, pieces: list[list[int]], options: SamplingOptions, **prompt: Any
) -> Generation:
    """Push a piece when the utterance has waited for three steps."""
    generation = decoder.add_open(Prompt((), **prompt), options)
    for piece in pieces:
        decoder.push_text(generation, piece)
        until_waiting(decoder, generation)
        for _ in range(3):
            decoder.step()
    decoder.end_text(generation)
    until_waiting(decoder, generation)
    return generation


def until_waiting(decoder: BatchDecoder, generation: Generation) -> None:
    while not generation.waiting and generation.finish_reason is None:
        decoder.step()


@pytest.fixture
def endless(config: SpeechLMConfig, published: dict[str, torch.Tensor]) -> SpeechLM:
    """Never draws a control id."""
    bias = published["llm_decoder.bias"].clone()
    bias[-3:] -= 100
    return SpeechLM.from_tensors(config, {**published, "llm_decoder.bias": bias})


def test_waiting_stream_does_not_hold_up_others(make: MakeDecoder, lm: SpeechLM) -> None:
    options = SamplingOptions(seed=1, max_tokens=20, min_tokens=20)
    decoder = make(lm, 2, 128)
    waiting = decoder.add_open(Prompt(()), SamplingOptions(seed=2, max_tokens=60, min_tokens=20))
    other = decoder.add(Prompt([4, 2]), options)
    while other.finish_reason is None:
        decoder.step()
    assert waiting.waiting
    assert not decoder.busy
    decoder.push_text(waiting, TEXT[:6])
    assert decoder.busy
    decoder.end_text(waiting)
    finish(decoder)
    assert waiting.finish_reason is not None


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 32), st.integers(0, 100))
@settings(max_examples=examples(6, fresh=30))
def test_neighbours_do_not_change_a_stream(
    make: MakeDecoder, lm: SpeechLM, sizes: list[int], num_prompt_speech: int, seed: int
) -> None:
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    pieces = [TEXT[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    prompt = {"prompt_text": TEXT[:6], "prompt_speech": range(num_prompt_speech)}
    options = SamplingOptions(seed=seed, max_ratio=5.0)
    alone = run_stream(make(lm, 1, 256), pieces, options, **prompt)
    crowd = make(lm, 3, 256)
    placeholder = crowd.add_open(Prompt(()))
    for neighbour in range(2):
        crowd.add(Prompt(TEXT[:20]), SamplingOptions(seed=neighbour, min_tokens=200))
    crowd.cancel(placeholder)  # the stream's slot comes before theirs, so it idles in their batch
    together = run_stream(crowd, pieces, options, **prompt)
    assert (together.tokens, together.finish_reason) == (alone.tokens, alone.finish_reason)


def test_less_than_a_block_of_text_equals_a_whole_prompt(make: MakeDecoder, lm: SpeechLM) -> None:
    """Without prompt speech there is nothing to interleave, so the layouts agree."""
    options = SamplingOptions(seed=5)
    decoder = make(lm, 2, 256)
    streamed = decoder.add_open(Prompt(()), options)
    decoder.push_text(streamed, TEXT[:4])
    decoder.end_text(streamed)
    whole = decoder.add(Prompt(TEXT[:4]), options)
    finish(decoder)
    assert (streamed.tokens, streamed.finish_reason) == (whole.tokens, whole.finish_reason)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), min_size=1, max_size=6),
    st.sampled_from([0, 7, 15, 32]),
)
@settings(max_examples=examples(10, fresh=50))
def test_speech_depends_on_the_text_and_not_on_when_it_came(
    make: MakeDecoder, lm: SpeechLM, pieces: list[tuple[int, int]], num_prompt_speech: int
) -> None:
    """Each piece comes some steps after the one before it; so does the end."""
    prompt = {"prompt_text": TEXT[:6], "prompt_speech": range(num_prompt_speech)}
    options = SamplingOptions(seed=3, max_ratio=5.0)
    text = TEXT[: sum(size for size, _ in pieces) + 1]
    at_once, slowly = (make(lm, 1, 512) for _ in range(2))
    expected = at_once.add_open(Prompt((), **prompt), options)
    at_once.push_text(expected, text)
    at_once.end_text(expected)
    until_waiting(at_once, expected)
    generation = slowly.add_open(Prompt((), **prompt), options)
    for size, steps in pieces:
        slowly.push_text(generation, text[:size])
        text = text[size:]
        for _ in range(steps):
            slowly.step()
    slowly.push_text(generation, text)
    slowly.end_text(generation)
    until_waiting(slowly, generation)
    assert (generation.tokens, generation.finish_reason) == (expected.tokens, expected.finish_reason)


def test_speech_lm_that_was_not_trained_on_it_takes_no_text_in_pieces(
    make: MakeDecoder, config: SpeechLMConfig, published: dict[str, torch.Tensor]
) -> None:
    whole = SpeechLM.from_tensors(dataclasses.replace(config, mix_ratio=(0, 0)), published)
    decoder = make(whole, 1, 32)
    with pytest.raises(InvalidInput, match=r"mix_ratio: .* takes the text of a segment whole"):
        decoder.add_open(Prompt(()))
    assert decoder.free_slots == 1


def test_block_is_limited_to_fifteen_tokens_and_the_end_to_the_ratio(
    make: MakeDecoder, endless: SpeechLM
) -> None:
    decoder = make(endless, 1, 512)
    generation = decoder.add_open(Prompt(()), SamplingOptions(seed=0))
    decoder.push_text(generation, TEXT[:5])
    until_waiting(decoder, generation)
    assert generation.waiting
    assert len(generation.tokens) == 15
    decoder.end_text(generation)
    until_waiting(decoder, generation)
    assert (len(generation.tokens), generation.finish_reason) == (100, FinishReason.LENGTH)


def test_fill_marker_may_be_drawn_within_a_block_but_no_stop(
    make: MakeDecoder, config: SpeechLMConfig, published: dict[str, torch.Tensor]
) -> None:
    bias = published["llm_decoder.bias"].clone()
    bias[-3:] += torch.tensor([300.0, 300.0, 200.0])
    impatient = SpeechLM.from_tensors(config, {**published, "llm_decoder.bias": bias})
    decoder = make(impatient, 1, 64)
    generation = decoder.add_open(Prompt(()), SamplingOptions(seed=0))
    decoder.push_text(generation, TEXT[:5])
    assert [*decoder.step(), *decoder.step()] == []
    assert generation.waiting


def test_stream_that_waits_with_a_full_cache_can_only_end(make: MakeDecoder, endless: SpeechLM) -> None:
    full = 1 + 5 + 15
    decoder = make(endless, 2, full)
    generation = decoder.add_open(Prompt(()), SamplingOptions(seed=0))
    decoder.push_text(generation, TEXT[:5])
    until_waiting(decoder, generation)
    neighbour = decoder.add(Prompt([4]), SamplingOptions(seed=1))
    until_waiting(decoder, neighbour)
    assert neighbour.finish_reason is FinishReason.LENGTH
    decoder.end_text(generation)
    assert decoder.step() == [Progress(generation, [], FinishReason.LENGTH)]
    assert len(generation.tokens) == 15


def test_text_without_room_in_the_cache_ends_with_length(make: MakeDecoder, lm: SpeechLM) -> None:
    decoder = make(lm, 1, 5)
    generation = decoder.add_open(Prompt(()), SamplingOptions(seed=0))
    decoder.push_text(generation, TEXT[:9])
    decoder.end_text(generation)
    assert decoder.step() == [Progress(generation, [], FinishReason.LENGTH)]
    assert decoder.free_slots == 1


def test_cancelled_stream_frees_its_slot(make: MakeDecoder, lm: SpeechLM) -> None:
    decoder = make(lm, 1, 32)
    generation = decoder.add_open(Prompt(()))
    decoder.cancel(generation)
    decoder.push_text(generation, [1])
    assert decoder.free_slots == 1
    assert decoder.step() == []


def test_stream_needs_text_before_its_end(make: MakeDecoder, lm: SpeechLM) -> None:
    decoder = make(lm, 1, 32)
    generation = decoder.add_open(Prompt((), [1, 2]))
    with pytest.raises(InvalidInput, match="at least one text token"):
        decoder.end_text(generation)


def test_no_text_after_the_end(make: MakeDecoder, lm: SpeechLM) -> None:
    decoder = make(lm, 2, 32)
    stream, whole = decoder.add_open(Prompt(())), decoder.add(Prompt([1]))
    decoder.push_text(stream, [1])
    decoder.end_text(stream)
    for generation in (stream, whole):
        with pytest.raises(InvalidInput, match="complete"):
            decoder.push_text(generation, [2])


def test_bad_piece_is_named_and_the_stream_goes_on(make: MakeDecoder, lm: SpeechLM) -> None:
    decoder = make(lm, 1, 64)
    generation = decoder.add_open(Prompt(()), SamplingOptions(seed=0, max_tokens=5))
    with pytest.raises(InvalidInput, match="text: "):
        decoder.push_text(generation, [1, 90])
    decoder.push_text(generation, [1])
    decoder.end_text(generation)
    finish(decoder)
    assert generation.tokens


@given(
    st.lists(st.tuples(st.sampled_from(["text", "speech", "speech", "fill", "end"]), st.integers(1, 12))),
    st.integers(0, 20),
    st.integers(1, 60),
)
@settings(max_examples=examples(100, fresh=500))
def test_what_is_drawn_unlooked_at_is_followed_by_a_draw(
    config: SpeechLMConfig, events: list[tuple[str, int]], prompt_speech: int, most: int
) -> None:
    """Below `plain_until` the next id is neither a fill marker nor the last, whatever came before."""
    stream = TextStream(config, TEXT[:3], range(prompt_speech))
    options = SamplingOptions(seed=0, max_ratio=3.0, ceiling=most, runaway_span=0)
    generation = Generation(config, options, (), TokenLimits(0, most), stream=stream)
    for event, count in events:
        if event == "text" and not stream.ended:
            generation.push_text(TEXT[:count])
        elif event == "end" and stream.num_text and not stream.ended:
            generation.end_text()
        generation.take_feed()
        assert generation.stalled == (stream.state is StreamState.WAITING)
        for _ in range(count if event in ("speech", "fill") else 0):
            if generation.stalled or generation.finish_reason is not None:
                break
            fills = generation.must_fill or (event == "fill" and stream.state is StreamState.DECODING)
            generation.accept(config.fill_id if fills else 3)
            if generation.stalled or generation.finish_reason is not None:
                continue
            if len(generation.tokens) + 1 < generation.plain_until:
                assert not generation.must_fill
                assert not generation.fills_after(1)
                assert len(generation.tokens) + 1 < generation.limits.max_tokens
