"""Many requests, stops and breakdowns of the engine ``tensorrt_llm`` behind the scheduler."""

from __future__ import annotations

import pytest
from coded_engine import TIMEOUT_S
from coded_trtllm import coded_model
from coded_utterances import coded
from engine_drivers import check_many_threads, check_stops_that_race, error_of, submit

from cosyvoice_runtime.lm.engines.engine import EngineError, prepare_engine
from cosyvoice_runtime.lm.engines.tensorrt_llm.checkpoint import EngineVocabulary


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


def test_many_threads_get_their_own_tokens(
    make_scheduler, trtllm, trtllm_settings, vocabulary, layout, lengths
):
    lengths |= {name: name for name in range(1, 49)}
    trtllm.load_model = lambda path: coded_model(vocabulary, lengths)
    scheduler = make_scheduler(prepare_engine(trtllm_settings(layout, max_slots=8)))
    check_many_threads(scheduler)


def test_stop_through_the_scheduler_races_with_the_end(
    make_scheduler, trtllm, trtllm_settings, vocabulary, layout, lengths
):
    lengths |= dict.fromkeys(range(1, 61), 3)
    trtllm.load_model = lambda path: coded_model(vocabulary, lengths)
    scheduler = make_scheduler(prepare_engine(trtllm_settings(layout)))
    check_stops_that_race(scheduler)


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
    trtllm.breakdown = RuntimeError("a worker of the executor is gone (/src/x.cpp:3)")
    trtllm.gate.open()
    for reader in running:
        assert str(reader.wait().ends[0]) == "the speech LM's engine broke down (RuntimeError)"
    assert waiting.wait().tokens == coded(3, 4)
    assert len(trtllm.executors) == 2
    assert not trtllm.executors[0].running


def test_executor_that_can_not_be_opened_again_refuses_everybody(
    make_scheduler, trtllm, trtllm_settings, vocabulary, layout, loads
):
    trtllm.load_model = lambda path: coded_model(vocabulary, {})
    ended: list[str] = []
    scheduler = make_scheduler(prepare_engine(trtllm_settings(layout)), end_process=ended.append)
    trtllm.gate.allow(1)
    running = submit(scheduler, 1)
    assert running.sending.wait(TIMEOUT_S)
    trtllm.open_failures.append(RuntimeError("out of memory"))
    trtllm.breakdown = RuntimeError("lost")
    trtllm.gate.open()
    assert isinstance(running.wait().ends[0], EngineError)
    assert "can't be started anew" in str(error_of(scheduler, 2))
    scheduler.close()
    assert len(ended) == 1
