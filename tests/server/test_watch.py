"""The watch over a server that is told to it: whatever goes wrong, somebody hears of it."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor import watch
from cosyvoice_runtime.supervisor.calls import ControlError, ProbeError, ProbeSilentError
from cosyvoice_runtime.supervisor.errors import (
    ServerDiedError,
    ServerStuckError,
    SupervisorError,
    WatchError,
)
from cosyvoice_runtime.supervisor.metrics import SupervisorMetrics
from cosyvoice_runtime.supervisor.watch import Watch
from eventually import eventually

TIMEOUT_S = 60.0
QUICK = {"probe_interval_s": 0.01, "max_failed_probes": 2}


class FakeServer:
    """A process that sleeps for each of the models ``a`` and ``b``; reloads and probes do as told."""

    def __init__(self, folder: Path) -> None:
        self.metrics = folder
        self.ended = threading.Event()
        self.killed: list[str] = []
        self.reloads: list[str] = []
        self.answers = True
        self.loading: str | None = None
        self.on_reload: Callable[[str], None] = lambda model: None
        self.on_probe: Callable[[str], None] = lambda model: None
        self._living: dict[str, subprocess.Popen[bytes]] = {}
        for model in ("a", "b"):
            self._start(model)

    def _start(self, model: str) -> None:
        self._living[model] = subprocess.Popen(["sleep", "600"])

    def running(self) -> bool:
        return not self.ended.is_set()

    def stubs(self) -> dict[str, set[int]]:
        return {model: {each.pid} if each.poll() is None else set() for model, each in self._living.items()}

    def kill_stubs(self, model: str) -> None:
        self.killed.append(model)
        self.die(model)

    def die(self, *models: str) -> None:
        for model in models:
            self._living[model].kill()
            self._living[model].wait()

    def in_order(self, names: Collection[str] | None = None) -> list[str]:
        return sorted(("a", "b") if names is None else names)

    def server_answers(self) -> bool:
        return self.answers

    def replace(self, model: str) -> None:
        self.reloads.append(model)
        self.on_reload(model)
        self._start(model)

    def probe(self, model: str) -> None:
        self.on_probe(model)


class Watched:
    """A watch over that server, and the failures that it tells."""

    def __init__(self, folder: Path) -> None:
        self.server = FakeServer(folder)
        self.counts = SupervisorMetrics(folder, ("a", "b"), folder)
        self.failures: list[SupervisorError] = []
        self.watch: Watch | None = None

    def start(self, home: Callable[[str], str] = lambda model: model, **changes: float) -> Watch:
        settings = ServerSettings(probe_interval_s=0.0, entry_models=("b",)).replace(**changes)
        self.watch = Watch(self.server, self.server, home, settings, self.counts, self.failures.append)
        return self.watch

    def failure(self) -> SupervisorError:
        eventually(lambda: bool(self.failures), TIMEOUT_S)
        return self.failures[0]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    one = Watched(tmp_path)
    yield one
    if one.watch is not None:
        one.watch.close()
    one.server.die("a", "b")


def refuse(model: str) -> None:
    raise ControlError("no room")


@pytest.mark.parametrize("error", [PermissionError("/proc can't be read"), KeyError("state")])
def test_unexpected_error_ends_the_server_with_a_reason(watched, error):
    def broken(model: str) -> None:
        raise error

    watched.server.on_reload = broken
    watched.start()
    watched.server.die("a")
    failure = watched.failure()
    assert isinstance(failure, WatchError)
    assert str(error) in str(failure)
    assert failure.exit_code == 8


def test_models_that_die_are_loaded_again(watched):
    one = watched.start()
    watched.server.die("a", "b")
    eventually(lambda: one.reloads == {"a": 1, "b": 1})
    assert sorted(watched.server.reloads) == ["a", "b"]
    assert 'cosyvoice_restarts_total{process="a"} 1.0' in watched.counts.page()


def test_process_that_died_before_the_watch_began_is_missed(watched):
    watched.server.die("a")
    one = watched.start()
    eventually(lambda: one.reloads == {"a": 1})


def test_model_that_can_not_be_loaded_again_ends_the_server(watched):
    watched.server.on_reload = refuse
    watched.start()
    watched.server.die("b")
    failure = watched.failure()
    assert type(failure) is ServerDiedError
    assert str(failure) == "b did not come back: no room"


def test_model_that_dies_again_before_it_answers_is_tried_again_until_the_server_starts_anew(watched):
    def die(model: str) -> None:
        watched.server.die("b")
        raise ProbeError("no answer")

    watched.server.on_probe = die
    watched.start()
    watched.server.die("b")
    failure = watched.failure()
    assert isinstance(failure, ServerDiedError)
    assert str(failure) == f"its models were reloaded {watch.MOST_RELOADS} times"


def test_end_of_the_server_is_told_by_its_process_alone(watched):
    watched.start(**QUICK)
    watched.server.ended.set()
    watched.server.die("a", "b")
    watched.server.answers = False
    watched.watch.close()
    watched.watch = None
    assert watched.failures == watched.server.reloads == []


def test_requests_that_died_with_an_entry_model_end_the_server(watched, monkeypatch):
    monkeypatch.setattr(watch, "take_lost_counts", lambda directory: {"b": 2})
    watched.start()
    watched.server.die("b")
    failure = watched.failure()
    assert isinstance(failure, ServerStuckError)
    assert str(failure) == "b died with 2 requests in flight"
    assert watched.server.reloads == []


@pytest.mark.parametrize("error", [ProbeError("no answer"), RuntimeError("the probe is broken")])
@pytest.mark.parametrize("home", ["a", "b"])
def test_model_whose_probes_fail_is_loaded_again_with_the_process_that_computes_for_it(watched, error, home):
    def probe(model: str) -> None:
        if model == "b" and not watched.server.reloads:
            raise error

    watched.server.on_probe = probe
    one = watched.start(lambda model: home if model == "b" else model, **QUICK)
    expected = sorted({home, "b"})
    eventually(lambda: sorted(one.reloads) == expected)
    assert watched.server.killed == expected
    assert 'cosyvoice_failed_probes_total{model="b"} 0.0' not in watched.counts.page()
    assert 'cosyvoice_failed_probes_total{model="a"} 0.0' in watched.counts.page()


def test_of_two_silent_models_the_one_that_the_other_calls_is_loaded_again(watched):
    def probe(model: str) -> None:
        if not watched.server.reloads:
            raise ProbeError("no answer")

    watched.server.on_probe = probe
    one = watched.start(**QUICK)
    eventually(lambda: one.reloads == {"a": 1})
    assert watched.server.reloads == ["a"]


def test_model_that_answers_others_is_not_ended_for_want_of_time_for_a_probe(watched, tmp_path):
    work = Metrics("b", tmp_path).counter("work_total", "Work.")
    probes, stuck = [], threading.Event()

    def probe(model: str) -> None:
        if model == "b" and not watched.server.reloads:
            probes.append(model)
            work.add(0.0 if stuck.is_set() else 1.0)
            raise ProbeSilentError("no end of the answer in time")

    watched.server.on_probe = probe
    one = watched.start(**QUICK)
    eventually(lambda: len(probes) >= 20)
    assert watched.server.reloads == []
    stuck.set()
    eventually(lambda: one.reloads == {"b": 1})


def test_good_probe_between_two_bad_ones_starts_the_count_again(watched):
    probes: list[str] = []

    def probe(model: str) -> None:
        probes.append(model)
        if len(probes) % 4 == 1:
            raise ProbeError("now and then")

    watched.server.on_probe = probe
    watched.start(**QUICK)
    eventually(lambda: len(probes) > 40)
    assert watched.server.reloads == []


@pytest.mark.parametrize("cause", ["a probe", "a reload"])
def test_server_that_answers_nothing_is_ended_and_no_model_blamed(watched, cause):
    def probe(model: str) -> None:
        raise ProbeSilentError("no answer")

    watched.server.answers = False
    if cause == "a probe":
        watched.server.on_probe = probe
        watched.start(**QUICK)
    else:
        watched.server.on_reload = refuse
        watched.start()
        watched.server.die("a")
    failure = watched.failure()
    assert isinstance(failure, ServerStuckError)
    assert str(failure).endswith(", and tritonserver itself answers nothing")
    assert watched.server.killed == []
