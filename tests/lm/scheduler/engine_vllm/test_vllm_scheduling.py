"""Many requests, stops and breakdowns of the engine ``vllm`` behind the scheduler."""

from __future__ import annotations

import pytest
from coded_engine import TIMEOUT_S, CollectingReader
from coded_utterances import coded
from coded_vllm import CodedModel
from engine_drivers import check_many_threads, check_stops_that_race, error_of, submit

from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.engine import EngineError, prepare_engine
from cosyvoice_runtime.lm.scheduler.request import Request


@pytest.fixture
def lengths(vllm) -> dict[int, int]:
    """Codes of each utterance; those not here never end."""
    lengths: dict[int, int] = {}
    vllm.load_model = lambda directory: CodedModel(directory, lengths)
    return lengths


def test_many_threads_get_their_own_tokens(make_scheduler, vllm_settings, lengths):
    lengths |= {name: name for name in range(1, 49)}
    scheduler = make_scheduler(prepare_engine(vllm_settings(max_slots=8, kv_cache_tokens=8 * 256)))
    check_many_threads(scheduler)


def test_stop_through_the_scheduler_races_with_the_end(make_scheduler, vllm, vllm_settings, lengths):
    lengths |= dict.fromkeys(range(1, 61), 3)
    scheduler = make_scheduler(prepare_engine(vllm_settings()))
    check_stops_that_race(scheduler)
    assert vllm.engines[-1].ids == set()


def test_reader_that_leaves_frees_its_slot(make_scheduler, vllm, vllm_settings, lengths):
    lengths[2] = 5
    scheduler = make_scheduler(prepare_engine(vllm_settings(max_slots=1, kv_cache_tokens=256)))
    gone = CollectingReader(leave_after=4)
    options = SamplingOptions("ras", min_tokens=0, max_tokens=60, seed=1)
    scheduler.submit(Request(Prompt([1]), options, True), gone)
    assert submit(scheduler, 2).wait().tokens == coded(2, 5)
    assert len(gone.wait().tokens) >= 4
    assert gone.tokens == coded(1, len(gone.tokens))


def test_breakdown_gives_a_fresh_engine_to_those_that_wait(
    make_scheduler, vllm, vllm_settings, loads, lengths
):
    lengths[3] = 4
    scheduler = make_scheduler(prepare_engine(vllm_settings(max_slots=2, kv_cache_tokens=512)))
    vllm.steps.allow(0)
    running = [submit(scheduler, name) for name in (1, 2)]
    waiting = submit(scheduler, 3)
    load = loads.wait_for(lambda load: load.active >= 1 and load.active + load.waiting == 3)
    vllm.breakdown = RuntimeError("a worker of the engine is gone")
    vllm.steps.allow(float("inf"))
    for reader in running[: load.active]:
        assert str(reader.wait().ends[0]) == "the speech LM's engine broke down (RuntimeError)"
    assert waiting.wait().tokens == coded(3, 4)
    assert [engine.alive for engine in vllm.engines] == [False, True]


def test_engine_that_can_not_be_opened_again_refuses_everybody(make_scheduler, vllm, vllm_settings, lengths):
    ended: list[str] = []
    scheduler = make_scheduler(prepare_engine(vllm_settings()), end_process=ended.append)
    vllm.steps.allow(1)
    running = submit(scheduler, 1)
    assert running.sending.wait(TIMEOUT_S)
    vllm.open_failures.append(RuntimeError("out of memory"))
    vllm.breakdown = RuntimeError("lost")
    vllm.steps.allow(float("inf"))
    assert isinstance(running.wait().ends[0], EngineError)
    assert "can't be started anew" in str(error_of(scheduler, 2))
    scheduler.close()
    assert len(ended) == 1
