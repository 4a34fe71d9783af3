"""What is run before it is captured, on a stand-in for torch's part of CUDA."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from cosyvoice_runtime.gpu import cuda_graphs
from cosyvoice_runtime.gpu.cuda_graphs import CudaGraphCapture, PacedCapture, give_back


class Graph:
    """Notes its captures and replays."""

    def __init__(self, events: list[str]) -> None:
        self._events = events

    def capture_begin(self, pool: object, capture_error_mode: str) -> None:
        self._events.append(f"capture {capture_error_mode}")

    def capture_end(self) -> None:
        self._events.append("captured")
        if "invalid" in self._events:
            raise RuntimeError("the capture was invalidated")

    def replay(self) -> None:
        self._events.append("replay")


@pytest.fixture
def events(monkeypatch) -> list[str]:
    noted: list[str] = []
    stream = SimpleNamespace(wait_stream=lambda other: None)
    cuda = SimpleNamespace(
        graph_pool_handle=lambda: 1,
        Stream=lambda device: stream,
        current_stream=lambda: stream,
        device=lambda device: nullcontext(),
        stream=lambda stream: nullcontext(),
        synchronize=lambda device: noted.append("synchronize"),
        empty_cache=lambda: noted.append("empty"),
        CUDAGraph=lambda: Graph(noted),
    )
    ended = SimpleNamespace(_cuda_endAllocateToPool=lambda gpu, pool: noted.append(f"over on {gpu}"))
    monkeypatch.setattr(cuda_graphs, "torch", SimpleNamespace(cuda=cuda, _C=ended))
    monkeypatch.setattr(cuda_graphs, "_set_libraries_up", lambda device: noted.append("libraries"))
    return noted


@pytest.fixture
def capture(events) -> CudaGraphCapture:
    return CudaGraphCapture(SimpleNamespace(index=1))


def noting(events: list[str], what: str) -> Callable[[], str]:
    """A computation; all that this makes have one code."""

    def compute() -> str:
        events.append(what)
        return what

    return compute


def test_first_of_a_code_is_run_before_and_later_ones_are_captured_at_once(capture, events):
    assert capture(noting(events, "first")).result == "first"
    assert events == ["first", "synchronize", "empty", "capture relaxed", "first", "captured", "replay"]
    events.clear()
    assert capture(noting(events, "second")).result == "second"
    assert events == ["capture relaxed", "second", "captured", "replay"]


def test_another_code_is_run_before_it_is_captured(capture, events):
    capture(noting(events, "first"))
    events.clear()
    capture(lambda: events.append("another"))
    assert events == ["another", "capture relaxed", "another", "captured", "replay"]


def test_warm_up_of_its_own_takes_the_place_of_the_first_run_and_of_a_replay(capture, events):
    for _ in range(2):
        capture(noting(events, "all"), noting(events, "less"))
    once = ["capture relaxed", "all", "captured"]
    assert events == ["less", "synchronize", "empty", *once, *once]


def test_each_capture_runs_its_first(capture, events):
    capture(noting(events, "first"))
    CudaGraphCapture("cuda", SimpleNamespace(wait_stream=lambda other: None))(noting(events, "beside"))
    assert events.count("beside") == 2


def test_others_have_their_turn_after_each_capture(events):
    paced = PacedCapture(CudaGraphCapture("cuda"), lambda: events.append("rest"))
    for what in ("first", "second"):
        assert paced(noting(events, what)).result == what
    assert events[-4:] == ["second", "captured", "replay", "rest"]
    assert events.count("rest") == 2


def test_nobody_waits_for_the_whole_device_while_something_is_captured(capture, events):
    """Another thread would get an error of CUDA, and the capture with it."""
    given = threading.Thread(target=give_back, args=["cuda"])

    def computation() -> None:
        if "capture relaxed" in events:
            given.start()
            given.join(0.05)
            assert given.is_alive()
            events.append("computed")

    capture(computation)
    given.join()
    assert events.index("computed") < len(events) - 1 - events[::-1].index("synchronize")


def test_what_others_compute_meanwhile_is_captured_and_never_run(capture, events):
    for _ in range(2):
        assert capture.unrun(noting(events, "live")).result == "live"
    once = ["capture relaxed", "live", "captured"]
    assert events == ["libraries", *once, *once]  # which belong to this thread and stream


def test_memory_is_left_to_others_who_compute_meanwhile(events):
    CudaGraphCapture("cuda", alone=False)(noting(events, "first"))
    assert events == ["first", "capture relaxed", "first", "captured", "replay"]


def test_allocator_is_told_that_a_failed_capture_is_over(capture, events):
    with pytest.raises(RuntimeError, match="invalidated"):
        capture(noting(events, "invalid"))
    assert events[-2:] == ["captured", "over on 1"]


def test_no_cycle_is_looked_for_while_something_is_captured(capture):
    collects: list[bool] = []
    capture(lambda: collects.append(gc.isenabled()))
    assert collects == [True, False]  # first it is run
    assert gc.isenabled()
