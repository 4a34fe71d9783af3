"""The numbers that an operator sees of the speech LM's batch."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
from coded_engine import CodedEngine, CollectingReader, coded_request

from cosyvoice_runtime.lm import FinishReason
from cosyvoice_runtime.lm.cache import CacheUse
from cosyvoice_runtime.lm.engines.torch import CacheMetrics
from cosyvoice_runtime.lm.scheduler.load_metrics import Load, LoadMetrics
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.metrics.metrics import SharedNumber
from cosyvoice_runtime.metrics.page import read_samples


@pytest.fixture
def load_metrics(tmp_path: Path) -> LoadMetrics:
    return LoadMetrics(Metrics("tensorrt_llm", tmp_path))


@pytest.fixture
def hasty_threads():
    """Threads take turns at nearly every line."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def shown(directory: Path) -> dict[str, float]:
    """Values that are not 0, by name and reason."""
    found = {
        f"{sample.name} {sample.labels.get('reason', '')}".strip(): sample.value
        for sample in read_samples(directory)
    }
    return {name: value for name, value in found.items() if value}


def test_counters_grow_with_every_load_and_gauges_follow_it(load_metrics, tmp_path):
    load_metrics(Load(2, 1, 2, 10, {}))
    assert shown(tmp_path) == {
        "cosyvoice_lm_active_slots": 2,
        "cosyvoice_lm_waiting_requests": 1,
        "cosyvoice_lm_tokens_per_step": 2,
        "cosyvoice_lm_tokens_total": 10,
    }
    load_metrics(Load(1, 0, 1, 25, {FinishReason.STOP: 1}, steps=8, step_s=0.5))
    load_metrics(Load(0, 0, 0, 30, {FinishReason.STOP: 1, FinishReason.ERROR: 1}, steps=12, step_s=0.75))
    assert shown(tmp_path) == {
        "cosyvoice_lm_tokens_total": 30,
        "cosyvoice_lm_steps_total": 12,
        "cosyvoice_lm_step_seconds_total": 0.75,
        "cosyvoice_lm_finished_total stop": 1,
        "cosyvoice_lm_finished_total error": 1,
    }


def test_values_that_have_not_changed_are_not_written(load_metrics, monkeypatch):
    written = []
    monkeypatch.setattr(SharedNumber, "write", lambda number: written.append(number))
    load = Load(1, 0, 1, 10, {FinishReason.STOP: 1}, steps=10, step_s=0.5)
    load_metrics(load)
    assert len(written) == 6
    load_metrics(load)
    assert len(written) == 6
    load_metrics(load._replace(tokens=11, finished={FinishReason.STOP: 2}))
    assert len(written) == 8


def test_a_caches_counters_go_on_with_a_fresh_one(tmp_path):
    watch = CacheMetrics(Metrics("tensorrt_llm", tmp_path))
    watch.opened()
    watch(CacheUse(pages=9, held=4, without=2, evictions=3, recomputed=200))
    watch(CacheUse(pages=9, held=0, without=0, evictions=5, recomputed=300))
    watch.opened()
    watch(CacheUse(pages=9, held=1, without=0, evictions=1, recomputed=10))
    assert shown(tmp_path) == {
        "cosyvoice_lm_cache_pages": 9,
        "cosyvoice_lm_cache_pages_in_use": 1,
        "cosyvoice_lm_evictions_total": 6,
        "cosyvoice_lm_recomputed_positions_total": 310,
    }


def test_every_request_is_in_one_place_whenever_one_looks(make_scheduler, hasty_threads):
    engine, requests = CodedEngine(slots=4), 200
    engine.gate = threading.Semaphore(0)
    scheduler = make_scheduler(lambda: engine, max_waiting=requests)
    readers = [CollectingReader() for _ in range(requests)]
    for name, reader in enumerate(readers):
        scheduler.submit(coded_request(name, 2), reader)
    engine.gate.release(requests * 2)
    load = scheduler.load
    while load.active or load.waiting:
        load = scheduler.load
        assert load.active + load.waiting + sum(load.finished.values()) == requests
    for reader in readers:
        reader.wait()
