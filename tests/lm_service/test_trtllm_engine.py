"""The engine ``tensorrt_llm`` on an executor that takes only what TensorRT-LLM's does."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import sys
import threading
from datetime import timedelta

import pytest
import torch
from coded_engine import TIMEOUT_S, RecordingReader

from cosyvoice_runtime.checkpoint.huggingface import SILENT
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.lm_service.engine import EngineError, prepare_engine
from cosyvoice_runtime.lm_service.request import Request
from cosyvoice_runtime.lm_service.trtllm import built_engine
from cosyvoice_runtime.lm_service.trtllm import engine as engine_module
from cosyvoice_runtime.lm_service.trtllm.engine import TrtllmEngine
from cosyvoice_runtime.lm_service.trtllm.visible_gpu import see_only
from cosyvoice_runtime.metrics import read_series
from cosyvoice_runtime.speech_lm import FinishReason, Prompt, SamplingOptions
from cosyvoice_runtime.trtllm import EngineVocabulary
from cosyvoice_runtime.trtllm.installed import Gpu
from trtllm_fake.bindings import CapacitySchedulerPolicy, KvCacheStats
from trtllm_fake.bindings import FinishReason as TrtllmEnd
from trtllm_fake.bindings import Request as TrtllmRequest
from trtllm_fake.install import Model

SPAN = 100
"""Utterance ``n`` says the codes ``n * SPAN`` and those after it."""
ENDLESS = 10**6
GREEDY = SamplingOptions("greedy", min_tokens=0, max_tokens=60)


def code(name: int, place: int) -> int:
    return name * SPAN + place


def coded_model(vocabulary: EngineVocabulary, lengths: dict[int, int], stop: int = 0) -> Model:
    """A network that is certain of what comes next; prompts hold a name and no speech."""

    def model(ids):
        logits = torch.zeros(vocabulary.output_rows)
        if vocabulary.layout == "speech":
            logits[vocabulary.speech.stop :] = SILENT
        name, place = ids[1] - vocabulary.text_offset, len(ids) - 3
        ended = place == lengths.get(name, ENDLESS)
        next_id = vocabulary.stop_ids[stop] if ended else vocabulary.speech_offset + code(name, place)
        logits[next_id] = 40.0
        return logits

    return model


@pytest.fixture(params=["merged", "speech"])
def layout(request) -> str:
    return request.param


@pytest.fixture
def lengths() -> dict[int, int]:
    """Codes of each utterance; those not here never end."""
    return {}


@pytest.fixture
def vocabulary(layout) -> EngineVocabulary:
    return EngineVocabulary(layout, text_tokens=1020, speech_rows=6564)


@pytest.fixture
def open_engine(trtllm, trtllm_settings, layout, vocabulary, lengths):
    """``open_engine(**settings)``; engines are closed after the test, and their threads with them."""
    threads = set(threading.enumerate())
    trtllm.load_model = lambda path: coded_model(vocabulary, lengths)
    opened: list[TrtllmEngine] = []

    def open_(**changes) -> TrtllmEngine:
        opened.append(prepare_engine(trtllm_settings(layout, **changes))())
        return opened[-1]

    yield open_
    for engine in opened:
        trtllm.gate.open()
        engine.close()
    assert set(threading.enumerate()) <= threads


@pytest.fixture
def engine(open_engine) -> TrtllmEngine:
    return open_engine()


def run(engine: TrtllmEngine, handles: set[int]) -> dict[int, list]:
    """Progress of each utterance to its end."""
    seen: dict[int, list] = {handle: [] for handle in handles}
    left = set(handles)
    while left:
        for row in engine.step():
            seen[row.handle].append(row)
            if row.finish_reason is not None:
                left.remove(row.handle)
    return seen


def tokens(rows: list) -> list[int]:
    return [token for row in rows for token in row.tokens]


def coded(name: int, length: int) -> list[int]:
    return [code(name, place) for place in range(length)]


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


def test_without_the_callback_ras_is_refused_and_says_so(open_engine, trtllm):
    engine = open_engine(ras_callback=False)
    assert trtllm.executors[-1].config.logits_post_processor_config is None
    with pytest.raises(InvalidInput, match=r"strategy: 'ras' .* while ras_callback is false"):
        engine.add(Prompt([3]), SamplingOptions("ras", min_tokens=0, max_tokens=9))
    assert trtllm.requests == []


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


def test_cancelled_utterance_brings_nothing_more_and_leaves_the_executor(engine, trtllm, lengths):
    lengths[2] = 30
    gone, other = engine.add(Prompt([1]), GREEDY), engine.add(Prompt([2]), GREEDY)
    while not any(row.handle == gone for row in engine.step()):
        pass
    engine.cancel(gone)
    assert run(engine, {other}).keys() == {other}
    assert (trtllm.ended[gone], engine._rows) == (TrtllmEnd.CANCELLED, {})


def test_cancel_of_what_has_just_ended_is_no_error(engine, trtllm, lengths):
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
    assert engine._rows == {}


@pytest.mark.parametrize("strategy", ["greedy", "ras"])
def test_cancelled_before_its_first_iteration(engine, trtllm, lengths, strategy):
    lengths[2] = 2
    trtllm.gate.hold()
    gone = engine.add(Prompt([1]), dataclasses.replace(GREEDY, strategy=strategy))
    engine.cancel(gone)
    other = engine.add(Prompt([2]), GREEDY)
    trtllm.gate.open()
    assert tokens(run(engine, {other})[other]) == coded(2, 2)
    assert engine._rows == {}
    assert engine._sampler._generations == {}


@pytest.mark.parametrize("strategy", ["greedy", "ras"])
def test_runaway_output_is_ended_and_its_request_too(open_engine, trtllm, vocabulary, strategy):
    def stuck(ids):
        return coded_model(vocabulary, {})([*ids[:3]])

    trtllm.load_model = lambda path: stuck
    engine = open_engine()
    options = SamplingOptions(strategy, min_tokens=0, max_tokens=90, runaway_span=20, tau=1.0, window=10_000)
    handle = engine.add(Prompt([3]), options)
    rows = run(engine, {handle})[handle]
    assert (tokens(rows), rows[-1].finish_reason) == ([300] * 20, FinishReason.REPETITION)
    last = engine.add(Prompt([3]), dataclasses.replace(options, max_tokens=2))
    assert run(engine, {last})[last][-1].finish_reason is FinishReason.LENGTH
    while engine._rows:
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
    handle = engine.add(Prompt([3]), GREEDY)
    (row,) = run(engine, {handle})[handle]
    assert str(row.error) == f"TensorRT-LLM emitted id {foreign}, which is no speech"
    while engine._rows:
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
    assert str(seen[broken][-1].error) == "the speech LM's logits are not finite"
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
    handle = engine.add(Prompt([1]), dataclasses.replace(GREEDY, max_tokens=200))
    while not any(row.handle == handle for row in engine.step()):
        pass
    executor = trtllm.executors[-1]
    engine.close()
    assert not executor._thread.is_alive()
    assert trtllm.ended == {handle: TrtllmEnd.CANCELLED}


def test_executor_is_told_slots_cache_device_and_policy(open_engine, trtllm, trtllm_settings, layout):
    open_engine(kv_cache_fraction=0.25)
    config = trtllm.executors[-1].config
    assert (config.max_batch_size, config.parallel_config.device_ids) == (4, [0])
    cache = config.kv_cache_config
    assert (cache.enable_block_reuse, cache.max_tokens, cache.free_gpu_memory_fraction) == (True, 1024, 0.25)
    policy = config.scheduler_config.capacity_scheduler_policy
    assert policy is CapacitySchedulerPolicy.GUARANTEED_NO_EVICT


def test_statistics_are_metrics_and_return_to_zero(open_engine, trtllm, lengths, tmp_path, monkeypatch):
    monkeypatch.setenv("SUPERVISOR_METRICS_DIR", str(tmp_path))
    lengths[3] = 5
    engine = open_engine()
    run(engine, {engine.add(Prompt([3]), GREEDY)})
    found = {series.name: numbers for series, numbers in read_series(tmp_path).items()}
    assert found["cosyvoice_trtllm_kv_blocks"] == [1000]
    assert found["cosyvoice_trtllm_kv_blocks_used"] == [7]
    assert found["cosyvoice_trtllm_kv_blocks_reused"] == [3]
    assert found["cosyvoice_trtllm_gpu_bytes"] == [12345]
    assert found["cosyvoice_trtllm_active_requests"] == [0]
    iterations = sum(found["cosyvoice_trtllm_iteration_seconds"][1:])
    assert 1 <= iterations <= 6
    assert found["cosyvoice_trtllm_iteration_seconds"][0] == pytest.approx(0.002 * iterations)


def test_cancelling_the_last_utterance_brings_the_load_to_zero(open_engine, tmp_path, monkeypatch):
    monkeypatch.setenv("SUPERVISOR_METRICS_DIR", str(tmp_path))
    engine = open_engine()
    handle = engine.add(Prompt([3]), GREEDY)
    while not engine.step():
        pass
    engine.cancel(handle)
    found = {series.name: numbers for series, numbers in read_series(tmp_path).items()}
    assert found["cosyvoice_trtllm_active_requests"] == found["cosyvoice_trtllm_queued_requests"] == [0]


def test_cache_smaller_than_the_setting_is_told(open_engine, trtllm, lengths, caplog):
    trtllm.cache = KvCacheStats(max_num_blocks=10, used_num_blocks=0, reused_blocks=0)
    lengths |= {1: 2, 2: 2}
    engine = open_engine()
    for name in (1, 2):
        run(engine, {engine.add(Prompt([name]), GREEDY)})
    assert caplog.text.count("the KV cache holds 320 positions, not the 1024 of kv_cache_tokens") == 1


def submit(scheduler, name: int, strategy: str = "greedy", request_id: str = "") -> RecordingReader:
    reader = RecordingReader()
    options = SamplingOptions(strategy, min_tokens=0, max_tokens=60, seed=name)
    scheduler.submit(Request(Prompt([name]), options, True, request_id), reader)
    return reader


def test_many_threads_get_their_own_tokens(
    make_scheduler, trtllm, trtllm_settings, vocabulary, layout, lengths
):
    lengths |= {name: name for name in range(1, 49)}
    trtllm.load_model = lambda path: coded_model(vocabulary, lengths)
    scheduler = make_scheduler(prepare_engine(trtllm_settings(layout, max_slots=8)))
    readers: dict[int, RecordingReader] = {}

    def ask(names: range) -> None:
        for name in names:
            readers[name] = submit(scheduler, name, ("greedy", "nucleus", "ras")[name % 3])
            if name % 4 == 0:
                readers[name].wait()

    threads = [threading.Thread(target=ask, args=[range(start, 49, 12)]) for start in range(1, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    for name in range(1, 49):
        assert readers[name].wait().tokens == coded(name, name)
        assert readers[name].reason is FinishReason.STOP


def test_stop_through_the_scheduler_races_with_the_end(
    make_scheduler, trtllm, trtllm_settings, vocabulary, layout, lengths
):
    lengths |= dict.fromkeys(range(1, 61), 3)
    trtllm.load_model = lambda path: coded_model(vocabulary, lengths)
    scheduler = make_scheduler(prepare_engine(trtllm_settings(layout)))
    readers = {name: submit(scheduler, name, request_id=str(name)) for name in range(1, 61)}
    for name in itertools.islice(readers, 0, None, 2):
        scheduler.stop(str(name))
    for name, reader in readers.items():
        assert reader.wait().reason in (FinishReason.STOP, FinishReason.CANCELLED)
        assert reader.tokens == coded(name, 3)[: len(reader.tokens)]
    assert all(readers[name].reason is FinishReason.STOP for name in itertools.islice(readers, 1, None, 2))


def test_breakdown_gives_a_fresh_executor_to_those_that_wait(
    make_scheduler, trtllm, trtllm_settings, vocabulary, layout, loads, lengths
):
    lengths[3] = 4
    trtllm.load_model = lambda path: coded_model(vocabulary, lengths)
    scheduler = make_scheduler(prepare_engine(trtllm_settings(layout, max_slots=2)))
    trtllm.gate.hold()
    running = [submit(scheduler, name) for name in (1, 2)]
    waiting = submit(scheduler, 3)
    loads.wait_for(lambda load: (load.active, load.waiting) == (2, 1))
    trtllm.breakdown = RuntimeError("CUDA error: an illegal memory access (/src/x.cu:3)")
    trtllm.gate.open()
    for reader in running:
        assert str(reader.wait().ends[0]) == "the speech LM's engine broke down (RuntimeError)"
    assert waiting.wait().tokens == coded(3, 4)
    assert len(trtllm.executors) == 2
    assert not trtllm.executors[0]._thread.is_alive()


def test_executor_that_can_not_be_opened_again_refuses_everybody(
    make_scheduler, trtllm, trtllm_settings, vocabulary, layout, loads
):
    trtllm.load_model = lambda path: coded_model(vocabulary, {})
    scheduler = make_scheduler(prepare_engine(trtllm_settings(layout)))
    running = submit(scheduler, 1)
    assert running.sending.wait(TIMEOUT_S)
    trtllm.open_failures.append(RuntimeError("out of memory"))
    trtllm.breakdown = RuntimeError("lost")
    assert isinstance(running.wait().ends[0], EngineError)
    scheduler._thread.join(TIMEOUT_S)
    with pytest.raises(EngineError, match="can't be started anew"):
        submit(scheduler, 2)


def refusal(settings, **changes) -> str:
    with pytest.raises(CosyVoiceError) as raised:
        prepare_engine(dataclasses.replace(settings, **changes))
    return str(raised.value)


@pytest.fixture
def settings(trtllm_settings, layout):
    return trtllm_settings(layout)


def test_without_the_module_the_container_is_named(settings):
    assert refusal(settings) == (
        "tensorrt_llm.engine: 'tensorrt_llm' is not accepted; the module tensorrt_llm is not installed; "
        "NVIDIA's container nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3 has it"
    )


def test_settings_that_the_engine_was_not_built_for_are_refused(trtllm, settings, tmp_path):
    assert "tensorrt_llm.device: 'cpu' is not accepted; engine tensorrt_llm needs cuda" in refusal(
        settings, device="cpu"
    )
    assert "tensorrt_llm.device: 'cuda:2' is not accepted; CUDA_VISIBLE_DEVICES is 0,1" in refusal(
        settings, device="cuda:2"
    )
    settings = dataclasses.replace(settings, device="cuda")
    assert "tensorrt_llm.max_slots: 9 is not accepted; the engine was built for at most 8" in refusal(
        settings, max_slots=9
    )
    assert "max_sequence_tokens: 300 is not accepted; the engine was built for at most 256" in refusal(
        settings, max_sequence_tokens=300
    )
    assert "option dtype was 'float32' when built, now 'bfloat16'" in refusal(settings, dtype="bfloat16")
    assert "manifest.json is missing: nothing was built here" in refusal(settings, engine_dir=tmp_path)


def test_engine_of_other_weights_libraries_or_gpus_is_refused(trtllm, settings, tmp_path, monkeypatch):
    settings = dataclasses.replace(settings, device="cuda")
    changed = shutil.copytree(settings.checkpoint_dir, tmp_path / "changed")
    content = bytearray((changed / "llm.pt").read_bytes())
    content[-1] ^= 1
    (changed / "llm.pt").write_bytes(content)
    assert "source llm.pt was '" in refusal(settings, checkpoint_dir=changed)
    monkeypatch.setattr(sys.modules["tensorrt_llm"], "__version__", "1.3.0")
    assert "version of tensorrt_llm was '1.2.1' when built, now '1.3.0'" in refusal(settings)
    monkeypatch.setattr(built_engine, "present_gpu", lambda: Gpu("NVIDIA L4", "8.9"))
    assert "GPU was 'NVIDIA H100 80GB HBM3' when built, now 'NVIDIA L4'" in refusal(settings)


def test_weights_from_elsewhere_are_told(trtllm, open_engine, settings, tmp_path, caplog):
    directory = shutil.copytree(settings.engine_dir, tmp_path / "engine")
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["sources"] = {"model.safetensors": "0" * 64}
    (directory / "manifest.json").write_text(json.dumps(manifest))
    open_engine(engine_dir=directory)
    assert "converted from a directory other than the checkpoint" in caplog.text


@pytest.mark.parametrize("layout", ["merged"], indirect=True)
def test_engine_without_its_bias_is_refused(trtllm, settings, tmp_path):
    directory = shutil.copytree(settings.engine_dir, tmp_path / "engine")
    (directory / "embedding_bias.safetensors").unlink()
    assert "embedding_bias.safetensors: missing or damaged" in refusal(settings, engine_dir=directory)


def test_gpu_is_chosen_before_tensorrt_llm_is_imported(trtllm, settings, monkeypatch):
    visible = []
    versions = built_engine.library_versions
    monkeypatch.setattr(
        built_engine,
        "library_versions",
        lambda: visible.append(os.environ["CUDA_VISIBLE_DEVICES"]) or versions(),
    )
    prepare_engine(settings)
    assert visible == ["1"]


@pytest.mark.parametrize(
    ("listed", "device", "left"),
    [(None, "cuda", "0"), (None, "cuda:3", "3"), ("4,7", "cuda:1", "7"), ("GPU-1f", "cuda", "GPU-1f")],
)
def test_process_sees_only_its_gpu(monkeypatch, listed, device, left):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    if listed is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    see_only(device)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == left


def test_gpu_can_not_be_chosen_when_cuda_is_in_use(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(InvalidInput, match="CUDA is in use in this process already"):
        see_only("cuda:1")
