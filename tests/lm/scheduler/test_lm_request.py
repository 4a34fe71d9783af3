"""Tensors in NVIDIA's names to requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosyvoice_runtime.checkpoint.merged_vocabulary import MergedVocabulary
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.prompt import num_positions
from cosyvoice_runtime.lm.scheduler.request import RequestReader, read_options, read_prompt

VOCABULARY = MergedVocabulary(text_tokens=50, speech_rows=33)
"""Text 0 to 49, codes 50 to 79, stops 80 to 82, sos 83, task_id 84."""
READER = RequestReader(VOCABULARY, max_tokens=100, max_sequence_tokens=60)
IDS = [83, 4, 5, 84, 50, 79]


def read(ids=IDS, **fields):
    return READER.read(ids, {"request_output_len": 20} | fields, "a")


@given(
    text=st.lists(st.integers(0, 49), min_size=1, max_size=20),
    speech=st.lists(st.integers(0, 29), max_size=20),
)
def test_prompt_survives_the_merged_vocabulary(text, speech):
    ids = [83, *text, 84, *(50 + code for code in speech)]
    assert read_prompt(ids, VOCABULARY) == Prompt(tuple(text), prompt_speech=tuple(speech))


@pytest.mark.parametrize("engine", ["vllm", "tensorrt_llm", "torch", "onnx"])
def test_engine_that_can_not_go_on_from_tokens_says_so(engine):
    reader = RequestReader(VOCABULARY, max_tokens=100, max_sequence_tokens=60, engine=engine)
    asked = Prompt((4,), spoken=(1, 2)), SamplingOptions(max_tokens=9), "a", (1, 1), False, True
    if reader.takes_spoken:
        assert reader.accept(*asked).prompt.spoken == (1, 2)
        return
    limit = f"'2 tokens' is not accepted; engine {engine} begins a text at its beginning"
    with pytest.raises(InvalidInput, match=f"spoken_tokens: {limit}"):
        reader.accept(*asked)


@pytest.mark.parametrize("engine", ["vllm", "tensorrt_llm", "torch", "onnx"])
def test_engine_that_serves_no_adapters_by_voice_says_so(engine):
    reader = RequestReader(VOCABULARY, max_tokens=100, max_sequence_tokens=60, engine=engine)
    asked = Prompt((4,), adapter="warm"), SamplingOptions(max_tokens=9), "a", (1, 1), False, True
    if reader.serves_adapters:
        assert engine == "torch"
        assert reader.accept(*asked).prompt.adapter == "warm"
        return
    with pytest.raises(InvalidInput, match=r"adapter: 'warm' is not accepted; engine torch and"):
        reader.accept(*asked)


@pytest.mark.parametrize("engine", ["vllm", "tensorrt_llm", "torch", "onnx"])
def test_attention_is_told_by_engines_that_may_see_it(engine):
    reader = RequestReader(VOCABULARY, max_tokens=100, max_sequence_tokens=60, engine=engine)
    sees = engine in ("torch", "onnx")
    for asked in (True, False):
        accepted = reader.accept(Prompt((4,)), SamplingOptions(max_tokens=9), "a", (1, 1), False, True, asked)
        given = reader.read(IDS, {"request_output_len": 20, "tell_attention": asked})
        assert accepted.with_rows == given.with_rows == (asked and sees)
    assert not reader.read(IDS, {"request_output_len": 20}).with_rows


def test_two_hundred_stop_ids_are_neither_codes_nor_text():
    vocabulary = MergedVocabulary(text_tokens=50, speech_rows=230, num_stops=200)
    assert (vocabulary.code_ids, vocabulary.stop_ids) == (range(50, 80), range(80, 280))
    assert (vocabulary.sos_id, vocabulary.task_id, vocabulary.length) == (280, 281, 282)
    assert read_prompt([280, 4, 281, 79], vocabulary) == Prompt((4,), prompt_speech=(29,))
    with pytest.raises(
        InvalidInput, match="'80 at position 3' is not accepted; prompt speech ids are 50 to 79"
    ):
        read_prompt([280, 4, 281, 80], vocabulary)
    reader = RequestReader(vocabulary, max_tokens=100, max_sequence_tokens=60)
    with pytest.raises(InvalidInput, match="end_id: 79 is not accepted; one of the stop ids 80 to 279"):
        reader.read([280, 4, 281], {"request_output_len": 20, "end_id": 79})
    assert reader.read([280, 4, 281], {"request_output_len": 20, "end_id": 279}).prompt == Prompt((4,))


def test_instruction_of_a_text_in_pieces_stands_before_the_transcript():
    reader = RequestReader(VOCABULARY, max_tokens=100, max_sequence_tokens=60, end_of_prompt=9)
    fields = {"request_output_len": 20, "text_open": True}
    read = reader.read([83, 7, 8, 9, 4, 5, 84, 52], fields, "a")
    assert read.prompt == Prompt((), (4, 5), (2,), lead_text=(7, 8, 9))
    assert reader.read([83, 4, 5, 84], fields, "a").prompt == Prompt((), (4, 5))


def test_speaker_is_part_of_the_prompt_and_takes_a_position():
    reader = RequestReader(VOCABULARY, max_tokens=100, max_sequence_tokens=10, speaker_values=3)
    fields = {"request_output_len": 4}
    assert reader.read(IDS, fields, speaker=()).prompt.speaker == ()
    with pytest.raises(InvalidInput, match="request_output_len: 4 is not accepted; at most 3, the room"):
        reader.read(IDS, fields, speaker=(1.0, 0.0, -1.0))
    read = reader.read(IDS, {"request_output_len": 3}, speaker=(1.0, 0.0, -1.0))
    assert read.prompt == Prompt((4, 5), prompt_speech=(0, 29), speaker=(1.0, 0.0, -1.0))


@pytest.mark.parametrize(
    ("values", "speaker", "said"),
    [
        (0, (1.0,), "'1 values' is not accepted; this speech LM reads none"),
        (3, (1.0, 2.0), "'2 values' is not accepted; 3 values"),
        (3, (1.0, float("nan"), 2.0), "'NaN, infinity or zeros alone' is not accepted"),
        (3, (0.0, 0.0, 0.0), "'NaN, infinity or zeros alone' is not accepted"),
    ],
)
def test_what_is_no_speaker_of_this_speech_lm_is_refused(values, speaker, said):
    reader = RequestReader(VOCABULARY, max_tokens=100, max_sequence_tokens=60, speaker_values=values)
    with pytest.raises(InvalidInput, match=f"prompt_spk_embedding: {said}"):
        reader.read(IDS, {"request_output_len": 20}, speaker=speaker)


def test_speech_lm_that_reads_whole_texts_alone_takes_no_pieces():
    reader = RequestReader(VOCABULARY, max_tokens=100, max_sequence_tokens=60, interleaves_text=False)
    with pytest.raises(InvalidInput, match=r"text_open: True is not accepted; .* was not trained on text"):
        reader.read([83, 84], {"request_output_len": 20, "text_open": True}, "a")


def test_silence_that_readers_drop_is_not_counted_in_groups_that_they_want():
    reader = RequestReader(VOCABULARY, 100, 60, silent_tokens=frozenset({1}))
    fields = {"request_output_len": 20}
    by_default, wanted = reader.read(IDS, fields), reader.read(IDS, fields | {"group_tokens": 25})
    assert (by_default.group_tokens, by_default.silent_tokens) == (None, frozenset())
    assert (wanted.group_tokens, wanted.silent_tokens) == (25, {1})
    driven = reader.accept(
        Prompt((4,)), SamplingOptions(max_tokens=20), "a", (8, 25), in_pieces=False, is_awaited=True
    )
    assert (driven.first_tokens, driven.group_tokens, driven.silent_tokens) == (8, 20, {1})


def test_driven_request_has_the_limits_of_its_text_unless_the_text_is_still_to_come():
    sampling, groups = SamplingOptions(min_tokens=3, max_tokens=20), (8, 25)
    whole = READER.accept(Prompt((4, 5)), sampling, "a", groups, in_pieces=False, is_awaited=True)
    limits = whole.options.min_tokens, whole.options.max_tokens, whole.options.ceiling
    assert (limits, whole.text_room) == ((3, 20, None), None)
    growing = READER.accept(Prompt((), (4, 5)), sampling, "a", groups, in_pieces=True, is_awaited=True)
    limits = growing.options.min_tokens, growing.options.max_tokens, growing.options.ceiling
    assert (limits, growing.text_room) == ((None, None, 20), 60 - num_positions(growing.prompt.segments()))


def test_shortest_prompt_can_be_read():
    assert read_prompt(VOCABULARY.shortest_prompt, VOCABULARY) == Prompt((0,))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([4, 84], r"input_ids: \[4\] is not accepted; the first id is sos, 83"),
        ([83, 4, 5], "input_ids: '3 ids without task_id' is not accepted; the text ends with task_id, 84"),
        ([83, 84, 50], "at least one text id stands between sos and task_id"),
        ([83, 4, 50, 84], "input_ids: '50 at position 2' is not accepted; text ids are 0 to 49"),
        ([83, 4, -1, 84], "'-1 at position 2' is not accepted; text ids are 0 to 49"),
        ([83, 4, 83, 84], "'83 at position 2' is not accepted; text ids"),
        ([83, 4, 84, 50, 80], "'80 at position 4' is not accepted; prompt speech ids are 50 to 79"),
        ([83, 4, 84, 7], "'7 at position 3' is not accepted; prompt speech ids"),
        ([83, 4, 84, 84], "'84 at position 3' is not accepted; prompt speech ids"),
    ],
)
def test_other_layouts_are_refused_by_id_and_position(ids, message):
    with pytest.raises(InvalidInput, match=message):
        read(ids)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"input_lengths": 0}, "input_lengths: 0 is not accepted; from 1 to the 6 ids in input_ids"),
        ({"input_lengths": 7}, "input_lengths: 7 is not accepted; from 1 to the 6 ids in input_ids"),
        ({"request_output_len": 0}, "request_output_len: 0 is not accepted; from 1 to 100"),
        ({"request_output_len": None}, "request_output_len: None is not accepted; from 1 to 100"),
        ({"request_output_len": 101}, "request_output_len: 101 is not accepted; from 1 to 100"),
        ({"request_output_len": 55}, "request_output_len: 55 is not accepted; at most 54, the room that 6"),
        ({"first_tokens": 0}, "first_tokens: 0 is not accepted; from 1 to 100"),
        ({"first_tokens": 101}, "first_tokens: 101 is not accepted; from 1 to 100"),
        ({"group_tokens": 0}, "group_tokens: 0 is not accepted; from 1 to 100"),
        ({"group_tokens": 101}, "group_tokens: 101 is not accepted; from 1 to 100"),
        ({"end_id": 79}, "end_id: 79 is not accepted; one of the stop ids 80 to 82"),
        ({"end_id": -1}, "end_id: -1 is not accepted; one of the stop ids 80 to 82"),
        ({"runtime_top_k": -1}, "runtime_top_k: -1 is not accepted; an integer of at least 0"),
        ({"runtime_top_p": 1.5}, "runtime_top_p: 1.5 is not accepted; a number from 1e-06 to 1"),
        ({"temperature": 0.0}, "temperature: 0.0 is not accepted; a number from 0.01 to 100"),
        ({"seed": 2**63}, "seed: 9223372036854775808 is not accepted"),
        ({"min_tokens": 21}, r"min_tokens: 21 is not accepted; at most max_tokens \(20\)"),
        (
            {"sampling_strategy": "beam"},
            "sampling_strategy: 'beam' is not accepted; one of ras, nucleus, greedy",
        ),
        ({"sampling_strategy": "ras", "ras_threshold": 2.0}, "ras_threshold: 2.0 is not accepted"),
    ],
)
def test_values_out_of_range_are_refused_by_tensor_name_value_and_limit(fields, message):
    with pytest.raises(InvalidInput, match=message):
        read(**fields)


def test_prompt_that_leaves_no_room_is_refused():
    with pytest.raises(InvalidInput, match="input_ids: '60 ids' is not accepted; fewer than 60"):
        read([83, 4, 84, *[50] * 57])


def test_ids_beyond_the_length_are_padding():
    assert read([*IDS, 0, 0], input_lengths=6) == read()


def test_missing_fields_have_nvidias_defaults():
    request = READER.read(IDS, {"request_output_len": 20, "temperature": None})
    assert request.options == SamplingOptions("greedy", 0, 1.0, seed=0, min_tokens=1, max_tokens=20)
    assert (request.streaming, request.id, request.echo) == (False, "", tuple(IDS))
    assert request.first_tokens == 1


@pytest.mark.parametrize(
    ("fields", "strategy", "top_k", "top_p"),
    [
        ({}, "greedy", 0, 1.0),
        ({"runtime_top_k": 0, "runtime_top_p": 0.0}, "greedy", 0, 1.0),
        ({"runtime_top_k": 50}, "nucleus", 50, 1.0),
        ({"runtime_top_p": 0.95}, "nucleus", 0, 0.95),
        ({"runtime_top_k": 50, "runtime_top_p": 0.95}, "nucleus", 50, 0.95),
        ({"sampling_strategy": "ras"}, "ras", 25, 0.8),
        ({"sampling_strategy": "ras", "runtime_top_k": 7}, "ras", 7, 0.8),
        ({"sampling_strategy": "nucleus"}, "nucleus", 25, 0.8),
    ],
)
def test_strategy_follows_nvidias_rules_unless_it_is_named(fields, strategy, top_k, top_p):
    options = read_options(fields)
    assert (options.strategy, options.top_k, options.top_p) == (strategy, top_k, top_p)


@pytest.mark.parametrize(
    ("fields", "echo"),
    [
        ({}, tuple(IDS)),
        ({"exclude_input_in_output": True}, ()),
        ({"streaming": True}, ()),
        ({"streaming": True, "exclude_input_in_output": False}, ()),
    ],
)
def test_input_stands_before_the_output_unless_excluded_or_streaming(fields, echo):
    assert read(**fields).echo == echo
