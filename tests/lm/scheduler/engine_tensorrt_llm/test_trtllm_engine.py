"""The engine ``tensorrt_llm`` on an executor that takes only what TensorRT-LLM's does."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
import torch
from coded_trtllm import coded_model
from coded_utterances import GREEDY, coded
from engine_drivers import own_threads, run, tokens

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm import FinishReason, Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.engine import prepare_engine
from cosyvoice_runtime.lm.engines.tensorrt_llm import engine as engine_module
from cosyvoice_runtime.lm.engines.tensorrt_llm.checkpoint import EngineVocabulary
from cosyvoice_runtime.lm.engines.tensorrt_llm.engine import TrtllmEngine
from cosyvoice_runtime.metrics.page import read_samples
from trtllm_fake.bindings import CapacitySchedulerPolicy, KvCacheStats
from trtllm_fake.bindings import FinishReason as TrtllmEnd
from trtllm_fake.bindings import Request as TrtllmRequest


@pytest.fixture(params=["merged", "speech"])
def layout(request) -> str:
    return request.param


@pytest.fixture
def lengths() -> dict[int, int]:
    """Codes of each utterance; those not here never end."""
    return {}


@pytest.fixture
def vocabulary(layout) -> EngineVocabulary:
    return EngineVocabulary(layout, text_tokens=1020, speech_rows=6564, num_stops=3, end_row=6561)


@pytest.fixture
def open_engine(trtllm, trtllm_settings, layout, vocabulary, lengths):
    """``open_engine(**settings)``; engines are closed after the test, and their threads with them."""
    threads = own_threads()
    trtllm.load_model = lambda path: coded_model(vocabulary, lengths)
    opened: list[TrtllmEngine] = []

    def open_(**changes) -> TrtllmEngine:
        opened.append(prepare_engine(trtllm_settings(layout, **changes))())
        return opened[-1]

    yield open_
    for engine in opened:
        trtllm.gate.open()
        engine.close()
    assert own_threads() <= threads


@pytest.fixture
def engine(open_engine) -> TrtllmEngine:
    return open_engine()


def test_tokens_stream_one_by_one_and_the_last_response_is_empty(engine, lengths):
    lengths[3] = 5
    handle = engine.add(Prompt([3]), GREEDY)
    rows = run(engine, {handle})[handle]
    assert tokens(rows) == coded(3, 5)
    assert [list(row.tokens) for row in rows if row.tokens] == [[token] for token in coded(3, 5)]
    assert (rows[-1].tokens, rows[-1].finish_reason) == ([], FinishReason.STOP)
    assert {row.finish_reason for row in rows[:-1]} == {None}


def test_last_token_comes_with_the_reason_when_the_length_is_reached(engine):
    handle = engine.add(Prompt([3]), dataclasses.replace(GREEDY, max_tokens=4))
    rows = run(engine, {handle})[handle]
    assert (tokens(rows), rows[-1].tokens, rows[-1].finish_reason) == (
        coded(3, 4),
        [303],
        FinishReason.LENGTH,
    )


@pytest.mark.parametrize("stop", [1, 2])
def test_other_stop_ids_end_the_speech_and_are_no_part_of_it(open_engine, trtllm, vocabulary, stop):
    trtllm.load_model = lambda path: coded_model(vocabulary, {3: 5}, stop)
    engine = open_engine()
    handle = engine.add(Prompt([3]), GREEDY)
    rows = run(engine, {handle})[handle]
    assert (tokens(rows), rows[-1].finish_reason) == (coded(3, 5), FinishReason.STOP)


@pytest.mark.parametrize("strategy", ["greedy", "nucleus", "ras"])
def test_utterances_of_a_batch_keep_to_themselves(engine, lengths, strategy):
    lengths |= {name: 5 * name for name in range(1, 5)}
    options = SamplingOptions(strategy, min_tokens=0, max_tokens=60, seed=1)
    handles = {engine.add(Prompt([name]), options): name for name in range(1, 5)}
    for handle, rows in run(engine, set(handles)).items():
        name = handles[handle]
        assert (tokens(rows), rows[-1].finish_reason) == (coded(name, 5 * name), FinishReason.STOP)


def test_minimum_length_holds_back_the_end(engine, lengths):
    """The end is masked, so the network's second choice is drawn: id 0 of what is equally unlikely."""
    lengths[3] = 2
    for strategy in ("greedy", "ras"):
        options = SamplingOptions(strategy, top_k=1, min_tokens=4, max_tokens=6)
        handle = engine.add(Prompt([3]), options)
        rows = run(engine, {handle})[handle]
        assert tokens(rows)[:2] == coded(3, 2)
        assert len(tokens(rows)) >= 4


def test_sampling_is_passed_on_as_it_is(engine, trtllm, vocabulary, layout):
    options = SamplingOptions("nucleus", 50, 0.9, 0.8, 1.1, seed=2**63 - 1, min_tokens=7, max_tokens=30)
    handle = engine.add(Prompt([3], prompt_text=[8], prompt_speech=[0, 6560]), options)
    request = trtllm.requests[-1]
    sampling = request.sampling_config
    assert (sampling.top_k, sampling.top_p, sampling.temperature) == (50, 0.9, 0.8)
    assert (sampling.repetition_penalty, sampling.seed, sampling.min_tokens) == (1.1, 2**63 - 1, 7)
    assert (request.max_tokens, request.streaming) == (30, True)
    offset = vocabulary.speech_offset
    assert request.input_token_ids == [
        vocabulary.sos_id,
        vocabulary.text_offset + 8,
        vocabulary.text_offset + 3,
        vocabulary.task_id,
        offset,
        offset + 6560,
    ]
    assert [request.end_id] == [offset + 6561]
    assert request.stop_words == [[offset + 6562], [offset + 6563]]
    assert (request.embedding_bias is None) == (layout == "speech")
    engine.cancel(handle)


def test_greedy_takes_the_best_and_an_open_seed_is_drawn_afresh(engine, trtllm):
    for _ in range(2):
        engine.add(Prompt([3]), GREEDY)
    first, second = (request.sampling_config for request in trtllm.requests)
    assert first.top_k == second.top_k == 1
    assert first.seed != second.seed


def test_ras_is_drawn_by_the_library_alone(engine, trtllm):
    engine.add(Prompt([3]), SamplingOptions("ras", temperature=0.5, min_tokens=3, max_tokens=9))
    request = trtllm.requests[-1]
    assert request.logits_post_processor_name == TrtllmRequest.BATCHED_POST_PROCESSOR_NAME
    assert request.embedding_bias is None
    assert (request.sampling_config.top_k, request.sampling_config.min_tokens) == (1, 0)
    assert request.sampling_config.temperature is None


def test_failed_request_ends_alone_and_tells_nothing_of_the_server(engine, trtllm, lengths, caplog):
    lengths |= {2: 3}
    trtllm.refuse = lambda request: "" if request.max_tokens < 50 else "out of blocks"
    failing = engine.add(Prompt([1]), GREEDY)
    other = engine.add(Prompt([2]), dataclasses.replace(GREEDY, max_tokens=9))
    seen = run(engine, {failing, other})
    (row,) = seen[failing]
    assert (row.tokens, row.finish_reason) == ([], FinishReason.ERROR)
    assert str(row.error) == "TensorRT-LLM could not decode this utterance; the server's log says why"
    assert "out of blocks (/src/llmRequest.cpp:12)" in caplog.text
    assert tokens(seen[other]) == coded(2, 3)


def test_cancelled_utterance_brings_nothing_more_and_leaves_the_executor(engine, trtllm, lengths, kept):
    lengths[2] = 30
    trtllm.gate.hold()
    gone, other = engine.add(Prompt([1]), GREEDY), engine.add(Prompt([2]), GREEDY)
    trtllm.gate.allow(1)
    while not any(row.handle == gone for row in engine.step()):
        pass
    engine.cancel(gone)
    trtllm.gate.open()
    assert run(engine, {other}).keys() == {other}
    assert trtllm.ended[gone] is TrtllmEnd.CANCELLED
    assert kept() == 0


def test_cancel_of_what_has_just_ended_is_no_error(engine, trtllm, lengths, kept):
    """The last response waits in the executor while the cancellation is on its way."""
    lengths |= {1: 2, 2: 2}
    trtllm.gate.hold()
    gone = engine.add(Prompt([1]), GREEDY)
    trtllm.gate.allow(3)
    trtllm.wait_for_end(1)
    engine.cancel(gone)
    trtllm.gate.open()
    other = engine.add(Prompt([2]), GREEDY)
    assert tokens(run(engine, {other})[other]) == coded(2, 2)
    assert kept() == 0


def test_cancel_of_what_the_last_step_has_ended_is_no_error(engine, lengths, kept):
    """A reader refuses tokens of a step that brought the end as well."""
    lengths[1] = 2
    handle = engine.add(Prompt([1]), GREEDY)
    run(engine, {handle})
    engine.cancel(handle)
    assert kept() == 0


@pytest.mark.parametrize("strategy", ["greedy", "ras"])
def test_cancelled_before_its_first_iteration(engine, trtllm, lengths, strategy, kept):
    lengths[2] = 2
    trtllm.gate.hold()
    gone = engine.add(Prompt([1]), dataclasses.replace(GREEDY, strategy=strategy))
    engine.cancel(gone)
    other = engine.add(Prompt([2]), GREEDY)
    trtllm.gate.open()
    assert tokens(run(engine, {other})[other]) == coded(2, 2)
    assert kept() == 0


@pytest.mark.parametrize("strategy", ["greedy", "ras"])
def test_runaway_output_is_ended_and_its_request_too(open_engine, trtllm, vocabulary, strategy):
    def stuck(ids):
        return coded_model(vocabulary, {})([*ids[:3]])

    trtllm.load_model = lambda path: stuck
    engine = open_engine()
    options = SamplingOptions(strategy, min_tokens=0, max_tokens=90, runaway_span=20, tau=1.0, window=10_000)
    trtllm.gate.hold()
    handle = engine.add(Prompt([3]), options)
    trtllm.gate.allow(30)  # more than the span, fewer than the request would get
    rows = run(engine, {handle})[handle]
    assert (tokens(rows), rows[-1].finish_reason) == ([300] * 20, FinishReason.REPETITION)
    trtllm.gate.open()
    last = engine.add(Prompt([3]), dataclasses.replace(options, max_tokens=2))
    assert run(engine, {last})[last][-1].finish_reason is FinishReason.LENGTH
    while handle not in trtllm.ended:
        engine.step()
    assert trtllm.ended[handle] is not TrtllmEnd.LENGTH


def test_id_that_is_no_speech_is_an_error_of_that_utterance(open_engine, trtllm, vocabulary, layout):
    foreign = 5 if layout == "merged" else vocabulary.output_rows - 1

    def model(ids):
        logits = coded_model(vocabulary, {})(ids)
        logits[foreign] = 10**6
        return logits

    trtllm.load_model = lambda path: model
    engine = open_engine()
    trtllm.gate.hold()
    handle = engine.add(Prompt([3]), GREEDY)
    trtllm.gate.allow(1)
    (row,) = run(engine, {handle})[handle]
    assert str(row.error) == f"TensorRT-LLM emitted id {foreign}, which is no speech"
    trtllm.gate.open()
    while handle not in trtllm.ended:
        assert engine.step() == []
    assert trtllm.ended[handle] is TrtllmEnd.CANCELLED


def test_broken_logits_under_ras_end_that_utterance_alone(open_engine, trtllm, vocabulary):
    def model(ids):
        logits = coded_model(vocabulary, {1: 30, 2: 4})(ids)
        return logits * torch.nan if ids[1] - vocabulary.text_offset == 1 and len(ids) > 5 else logits

    trtllm.load_model = lambda path: model
    engine = open_engine()
    ras = dataclasses.replace(GREEDY, strategy="ras")
    broken, other = engine.add(Prompt([1]), ras), engine.add(Prompt([2]), ras)
    seen = run(engine, {broken, other})
    assert (
        str(seen[broken][-1].error)
        == "speech_lm: NaN or infinity in the logits; ./run.sh check names the layer"
    )
    assert seen[broken][-1].finish_reason is FinishReason.ERROR
    assert (tokens(seen[other]), seen[other][-1].finish_reason) == (coded(2, 4), FinishReason.STOP)


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        (Prompt([1020]), GREEDY, r"text: \[1020\] is not accepted; ids are 0 to 1019"),
        (Prompt([1], prompt_speech=[6561]), GREEDY, "prompt_speech: .* ids are 0 to 6560"),
        (Prompt([]), GREEDY, "at least one text token is needed"),
        (Prompt([1] * 254), GREEDY, "prompt: '256 positions' is not accepted; fewer than 256"),
        (Prompt([1] * 200), GREEDY, "max_tokens: 60 is not accepted; after this prompt there is room for 54"),
    ],
)
def test_what_does_not_fit_is_refused_before_it_reaches_the_executor(
    engine, trtllm, prompt, options, message
):
    with pytest.raises(InvalidInput, match=message):
        engine.add(prompt, options)
    assert trtllm.requests == []


def test_stuck_executor_does_not_hold_the_scheduler(engine, trtllm, monkeypatch):
    monkeypatch.setattr(engine_module, "WAIT", timedelta(milliseconds=1))
    trtllm.gate.hold()
    engine.add(Prompt([1]), GREEDY)
    assert engine.step() == []


def test_close_does_not_wait_for_those_that_run(open_engine, trtllm, trtllm_settings, layout):
    engine = prepare_engine(trtllm_settings(layout))()
    trtllm.gate.hold()
    handle = engine.add(Prompt([1]), dataclasses.replace(GREEDY, max_tokens=200))
    trtllm.gate.allow(1)
    while not any(row.handle == handle for row in engine.step()):
        pass
    executor = trtllm.executors[-1]
    engine.close()
    assert not executor.running
    assert trtllm.ended == {handle: TrtllmEnd.CANCELLED}


def test_executor_is_told_slots_cache_device_and_policy(open_engine, trtllm, trtllm_settings, layout):
    open_engine()
    config = trtllm.executors[-1].config
    assert (config.max_batch_size, config.parallel_config.device_ids) == (4, [0])
    cache = config.kv_cache_config
    assert (cache.enable_block_reuse, cache.max_tokens, cache.free_gpu_memory_fraction) == (True, 1024, 0.5)
    policy = config.scheduler_config.capacity_scheduler_policy
    assert policy is CapacitySchedulerPolicy.GUARANTEED_NO_EVICT


def test_statistics_are_metrics_and_return_to_zero(open_engine, trtllm, lengths, tmp_path, monkeypatch):
    monkeypatch.setenv("SUPERVISOR_METRICS_DIR", str(tmp_path))
    lengths[3] = 5
    engine = open_engine()
    run(engine, {engine.add(Prompt([3]), GREEDY)})
    found = {sample.name: sample.value for sample in read_samples(tmp_path)}
    assert found["cosyvoice_trtllm_kv_blocks"] == 1000
    assert found["cosyvoice_trtllm_kv_blocks_used"] == 7
    assert found["cosyvoice_trtllm_kv_blocks_reused_total"] == 3
    assert found["cosyvoice_trtllm_gpu_bytes"] == 12345
    assert found["cosyvoice_trtllm_active_requests"] == 0
    iterations = found["cosyvoice_trtllm_iteration_seconds_count"]
    assert 1 <= iterations <= 6
    assert found["cosyvoice_trtllm_iteration_seconds_sum"] == pytest.approx(0.002 * iterations)


def test_cancelling_the_last_utterance_brings_the_load_to_zero(open_engine, trtllm, tmp_path, monkeypatch):
    monkeypatch.setenv("SUPERVISOR_METRICS_DIR", str(tmp_path))
    engine = open_engine()
    trtllm.gate.hold()
    handle = engine.add(Prompt([3]), GREEDY)
    trtllm.gate.allow(1)
    while not engine.step():
        pass
    engine.cancel(handle)
    found = {sample.name: sample.value for sample in read_samples(tmp_path)}
    assert found["cosyvoice_trtllm_active_requests"] == found["cosyvoice_trtllm_queued_requests"] == 0


def test_cache_smaller_than_the_setting_is_told(open_engine, trtllm, lengths, caplog):
    trtllm.cache = KvCacheStats(max_num_blocks=10, used_num_blocks=0, reused_blocks=0)
    lengths |= {1: 2, 2: 2}
    engine = open_engine()
    for name in (1, 2):
        run(engine, {engine.add(Prompt([name]), GREEDY)})
    assert caplog.text.count("the KV cache holds 320 positions, not the 1024 of kv_cache_tokens") == 1
