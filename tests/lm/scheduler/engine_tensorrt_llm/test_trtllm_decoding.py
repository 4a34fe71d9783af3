"""What the decoder's kernels make of bias and masks: a reference on the CPU, in their order."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cosyvoice_runtime.checkpoint.merged_vocabulary import SILENT
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.tensorrt_llm.checkpoint import LAYOUTS, EngineVocabulary
from cosyvoice_runtime.lm.engines.tensorrt_llm.requests import RequestMaker
from cosyvoice_runtime.lm.generation import TokenLimits
from cosyvoice_runtime.lm.sampling import SamplerState
from cosyvoice_runtime.lm.torch.speech_decoder import sample_batch
from trtllm_fake import bindings, kernels

TEXT, CODES = 40, 30


def vocabulary(layout: str) -> EngineVocabulary:
    return EngineVocabulary(layout, text_tokens=TEXT, speech_rows=CODES + 3, num_stops=3, end_row=CODES)


def bias_of(vocabulary: EngineVocabulary, head_bias: torch.Tensor) -> torch.Tensor:
    bias = torch.full((vocabulary.output_rows,), SILENT)
    bias[vocabulary.speech] = head_bias
    return bias


def make(layout: str, prompt: Prompt, options: SamplingOptions, bias: torch.Tensor | None):
    maker = RequestMaker(bindings, vocabulary(layout), bias, max_positions=1000)
    return maker.make(prompt, options, TokenLimits.of(options, len(prompt.text)), 7, 1)


def test_bias_comes_first_then_temperature_then_penalty_then_minimum():
    prompt, options = (
        Prompt([0], prompt_speech=[4]),
        SamplingOptions("nucleus", temperature=2.0, repetition_penalty=4.0, min_tokens=2, max_tokens=9),
    )
    head_bias = torch.arange(CODES + 3).float()
    request = make("merged", prompt, options, bias_of(vocabulary("merged"), head_bias))
    logits = torch.zeros(vocabulary("merged").output_rows)
    offset = vocabulary("merged").speech_offset
    logits[offset + 5] = -11.0
    values = kernels.processed(logits, request, output=[offset + 5])
    speech = values[vocabulary("merged").speech]
    assert speech[3] == 3 / 2
    assert speech[4] == 4 / 2 / 4  # in the prompt
    assert speech[5] == (-11 + 5) / 2 * 4  # in the output
    assert speech[CODES] == -torch.inf  # one token so far, and two are the minimum
    assert speech[CODES + 1] == (CODES + 1) / 2  # TensorRT-LLM masks one stop id only
    assert values[0] == SILENT / 2 * 4  # text of the prompt


@pytest.mark.parametrize("layout", LAYOUTS)
def test_scores_are_those_of_the_librarys_sampler(layout):
    """The same logits, prompt and options: both take the same token where nothing is left to chance."""
    ids = vocabulary(layout)
    generator = torch.Generator().manual_seed(3)
    for seed in range(50):
        speech = torch.randn(CODES + 3, generator=generator) * 3
        head_bias = torch.randn(CODES + 3, generator=generator)
        options = SamplingOptions(
            "greedy", temperature=0.7, repetition_penalty=1.5, seed=seed, min_tokens=0, max_tokens=9
        )
        prompt, output = Prompt([3, 1], prompt_speech=[2, 9, 17]), [5, 9, 28]
        bias = bias_of(ids, head_bias)
        merged = layout == "merged"
        request = make(layout, prompt, options, bias if merged else None)
        logits = torch.zeros(ids.output_rows) if merged else bias.clone()
        logits[ids.speech] = speech if merged else speech + head_bias
        values = kernels.processed(logits, request, [ids.speech_offset + token for token in output])
        drawn = kernels.draw(values, request, torch.Generator().manual_seed(0))
        state = SamplerState(options, prompt.prompt_speech)
        state.history = output
        assert [drawn - ids.speech_offset] == sample_batch((speech + head_bias)[None], [state])


@settings(max_examples=200)
@given(
    layout=st.sampled_from(LAYOUTS),
    strategy=st.sampled_from(["nucleus", "greedy"]),
    temperature=st.sampled_from([0.01, 1.0, 100.0]) | st.floats(0.01, 100.0),
    penalty=st.sampled_from([0.01, 1.0, 100.0]) | st.floats(0.01, 100.0),
    top_k=st.integers(0, 1024),
    top_p=st.floats(1e-6, 1.0),
    scale=st.floats(0.0, 50.0),
    seed=st.integers(0, 2**32),
    text=st.lists(st.integers(0, TEXT - 1), min_size=1, max_size=20),
    speech=st.lists(st.integers(0, CODES - 1), max_size=20),
)
def test_no_id_but_speech_is_ever_emitted(
    layout, strategy, temperature, penalty, top_k, top_p, scale, seed, text, speech
):
    """Whatever the network says and whatever a request asks for, as long as the engine takes it."""
    options = SamplingOptions(
        strategy, top_k, top_p, temperature, penalty, seed=seed, min_tokens=2, max_tokens=9
    )
    ids = vocabulary(layout)
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(CODES + 3, generator=generator) * scale
    bias = bias_of(ids, torch.randn(CODES + 3, generator=generator) * 5)
    prompt = Prompt(text, prompt_speech=speech)
    try:
        request = make(layout, prompt, options, bias if layout == "merged" else None)
    except InvalidInput:
        assume(False)
    logits = torch.zeros(ids.output_rows) if layout == "merged" else bias.clone()
    logits[ids.speech] += rows
    output: list[int] = []
    for _ in range(6):
        values = kernels.processed(logits, request, output)
        chances = values.softmax(dim=-1)
        assert chances[: ids.speech.start].sum() == chances[ids.speech.stop :].sum() == 0
        drawn = kernels.draw(values, request, generator)
        assert ids.speech.start <= drawn < ids.speech.stop
        output.append(drawn)


def test_options_under_which_text_could_be_drawn_are_refused():
    options = SamplingOptions("nucleus", temperature=100.0, repetition_penalty=0.01)
    with pytest.raises(InvalidInput, match=r"repetition_penalty: 0\.01 .* temperature 100 text could be"):
        make("merged", Prompt([1]), options, None)


def test_candidates_beyond_tensorrt_llms_limit_are_refused_and_no_limit_is_not():
    with pytest.raises(InvalidInput, match=r"top_k: 1025 .* at most 1024 in engine tensorrt_llm"):
        make("speech", Prompt([1]), SamplingOptions("nucleus", top_k=1025), None)
    request = make("speech", Prompt([1]), SamplingOptions("nucleus", top_k=0, top_p=0.9), None)
    assert (request.sampling_config.top_k, request.sampling_config.top_p) == (0, 0.9)
