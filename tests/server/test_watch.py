"""The watch over a server that is told to it: whatever goes wrong, somebody hears of it."""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor import watch
from cosyvoice_runtime.supervisor.errors import (
    LostRequestsError,
    RepairError,
    ServerDiedError,
    ServerSilentError,
    SupervisorError,
    WatchError,
    WornOutError,
)
from cosyvoice_runtime.supervisor.growing_pause import FIRST_S, LONGEST_S, GrowingPause
from cosyvoice_runtime.supervisor.guarded_call import Check
from cosyvoice_runtime.supervisor.http_call import ControlError
from cosyvoice_runtime.supervisor.probe import ProbeError, ProbeSilentError
from cosyvoice_runtime.supervisor.supervisor_metrics import SupervisorMetrics
from cosyvoice_runtime.supervisor.watch import Watch
from eventually import eventually

TIMEOUT_S = 60.0
SETTINGS = ServerSettings(watch_interval_s=0.05, probe_interval_s=0.0, entry_models=("b",))


class FakeProcess:
    """A server of one process each of the models ``a`` and ``b``."""

    def __init__(self) -> None:
        self.alive = True
        self.living = Counter(a=1, b=1)
        self.pids: list[int] = []
        self.asked = threading.Event()
        self.killed: list[str] = []
        self.work = 0.0
        self.lost: dict[str, int] = {}

    def take_lost(self) -> dict[str, int]:
        return self.lost

    def running(self) -> bool:
        return self.alive

    def exit_code(self) -> int:
        return -9

    def count_stubs(self) -> Counter[str]:
        return self.living.copy()

    def stubs(self) -> list[int]:
        pids = self.pids  # before whoever waits gives others
        self.asked.set()
        return pids

    def work_done(self, model: str) -> float:
        return self.work

    def kill_stubs(self, model: str) -> None:
        self.killed.append(model)


class FakeModels:
    """Reloads as told; probes pass."""

    probed = ("a", "b")

    def __init__(self, process: FakeProcess) -> None:
        self.process = process
        self.reloads: list[str] = []
        self.events: list[tuple[str, str]] = []
        self.reloading = threading.Event()
        self.is_idle = True
        self.answers = True
        self.on_reload: Callable[[Check], None] = lambda check: None
        self.on_probe: Callable[[str, Check], None] = lambda model, check: None
        self.homes: dict[str, str] = {}

    def home(self, model: str) -> str:
        return self.homes.get(model, model)

    def require_server(self, check: Check) -> None:
        if not self.answers:
            for _ in range(20):  # longer than between two looks
                threading.Event().wait(0.01)
                check()
            raise ControlError("no answer in time")

    def in_order(self, names: Collection[str]) -> list[str]:
        return sorted(names)

    def idle(self, check: Check) -> bool:
        return self.is_idle

    def replace(self, model: str, check: Check) -> None:
        self.reloads.append(model)
        self.events.append(("load", model))
        self.reloading.set()
        self.on_reload(check)
        self.process.living[model] = 1

    def probe(self, model: str, check: Check) -> None:
        self.events.append(("probe", model))
        self.on_probe(model, check)


class Watched:
    """A watch, and the failure that it tells."""

    def __init__(self, **changes: float) -> None:
        self.process = FakeProcess()
        self.models = FakeModels(self.process)
        self.settings = SETTINGS.replace(**changes)
        self.counts = SupervisorMetrics(Path("nowhere"), ("a", "b"), Path("nowhere"))
        self.watch: Watch | None = None
        self._failed = threading.Event()
        self.failures: list[SupervisorError] = []

    def start(self) -> Watched:
        counts, expected = self.counts, Counter(a=1, b=1)
        self.watch = Watch(self.process, self.models, self.settings, counts, self._fail, expected)
        return self

    def failure(self) -> SupervisorError:
        assert self._failed.wait(TIMEOUT_S), "nobody was told of a failure"
        [failure] = self.failures
        return failure

    def close_in_time(self) -> bool:
        closer = threading.Thread(target=self.watch.close, daemon=True)
        closer.start()
        closer.join(TIMEOUT_S)
        return not closer.is_alive()

    def _fail(self, failure: SupervisorError) -> None:
        self.failures.append(failure)
        self._failed.set()


@pytest.fixture
def watched() -> Iterator[Callable[..., Watched]]:
    made: list[Watched] = []

    def make(**changes: float) -> Watched:
        made.append(Watched(**changes))
        return made[-1]

    yield make
    for one in made:
        if one.watch is not None:
            one.watch.close()


def wait_for_ever(check: Check) -> None:
    """A call without an answer."""
    tick = threading.Event()
    while True:
        tick.wait(0.01)
        check()


def test_unexpected_error_of_the_watch_ends_the_server_with_a_reason(watched):
    one = watched().start()

    def broken() -> Counter[str]:
        raise PermissionError("/proc can't be read")

    one.process.count_stubs = broken
    failure = one.failure()
    assert isinstance(failure, WatchError)
    assert "/proc can't be read" in str(failure)
    assert failure.exit_code == 8


def test_unexpected_error_of_a_reload_ends_the_server_with_a_reason(watched):
    one = watched()

    def broken(check: Check) -> None:
        raise KeyError("state")

    one.models.on_reload = broken
    one.start().process.living["a"] = 0
    assert isinstance(one.failure(), WatchError)


def test_process_that_died_before_the_watch_began_is_missed(watched):
    one = watched()
    del one.process.living["a"]
    one.start()
    assert one.models.reloading.wait(TIMEOUT_S)
    assert one.models.reloads == ["a"]


def reloading(watched):
    """One whose reload of ``a`` never ends."""
    one = watched()
    one.models.on_reload = wait_for_ever
    one.start().process.living["a"] = 0
    assert one.models.reloading.wait(TIMEOUT_S)
    return one


def test_reload_that_never_ends_is_given_up_when_the_server_has_died(watched):
    one = reloading(watched)
    one.process.alive = False
    failure = one.failure()
    assert isinstance(failure, ServerDiedError)
    assert "exit code -9" in str(failure)


def test_reload_that_never_ends_is_given_up_when_the_server_is_to_stop(watched):
    one = reloading(watched)
    assert one.close_in_time()
    assert one.failures == []
    assert one.process.killed == ["a"]  # Triton answers no unload before


@pytest.fixture
def short_pauses(monkeypatch):
    """Pauses of a thousandth of what they are."""
    monkeypatch.setattr(watch, "GrowingPause", lambda: GrowingPause(FIRST_S / 1000, LONGEST_S / 1000))


def test_reload_that_fails_is_tried_again_until_it_was_tried_too_often(watched, short_pauses):
    one = watched(max_reloads=3)
    one.models.on_reload = refuse
    one.start().process.living["b"] = 0
    assert isinstance(one.failure(), RepairError)
    assert one.models.reloads == ["b"] * 3
    assert 'cosyvoice_restarts_total{process="b"} 3.0' in one.counts.page()
    assert 'cosyvoice_restarts_total{process="a"} 0.0' in one.counts.page()


class Clock:
    """Stands still but for what is added."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """Of the pauses."""
    made = Clock()
    monkeypatch.setattr(watch, "GrowingPause", lambda: GrowingPause(clock=made))
    return made


def nothing_is_reloaded(one: Watched, looks: int = 5) -> None:
    """For a number of further looks."""
    before = len(one.models.reloads)
    for _ in range(looks):
        one.process.asked.clear()
        assert one.process.asked.wait(TIMEOUT_S)
    assert len(one.models.reloads) == before


@pytest.mark.parametrize("how", ["does not load", "dies silently", "dies in its probe"])
def test_model_that_does_not_come_back_is_tried_again_after_pauses_that_grow(watched, clock, how):
    one = watched()
    if how == "does not load":
        one.models.on_reload = refuse

    def die(model: str, check: Check) -> None:
        one.process.living["b"] = 0
        if how == "dies silently":
            wait_for_ever(check)
        raise ProbeError("no answer")

    one.models.on_probe = die
    one.start().process.living["b"] = 0
    for number, pause_s in enumerate((1, 2, 4, 8, 16, 30, 30), start=1):
        eventually(lambda number=number: len(one.models.reloads) == number)
        nothing_is_reloaded(one)
        clock.now += pause_s
    assert one.failures == []


def test_another_model_that_dies_meanwhile_is_reloaded_at_once(watched, clock):
    one = watched()
    one.models.on_reload = refuse
    one.start().process.living["b"] = 0
    assert one.models.reloading.wait(TIMEOUT_S)
    one.process.living["a"] = 0
    eventually(lambda: one.models.reloads == ["b", "a"])
    nothing_is_reloaded(one)


def test_pause_ends_at_once_with_a_stop(watched, clock):
    one = watched()
    one.models.on_reload = refuse
    one.start().process.living["b"] = 0
    assert one.models.reloading.wait(TIMEOUT_S)
    assert one.close_in_time()
    assert one.failures == []


def test_model_that_came_back_is_reloaded_at_once_the_next_time(watched, clock):
    one = watched()
    one.models.on_reload = refuse
    one.start().process.living["b"] = 0
    for number, pause_s in enumerate((1, 2, 4), start=1):
        eventually(lambda number=number: len(one.models.reloads) == number)
        if number == 3:
            one.models.on_reload = lambda check: None
        nothing_is_reloaded(one)
        clock.now += pause_s
    eventually(lambda: one.watch.reloads["b"] == 1)
    one.process.living["b"] = 0
    eventually(lambda: one.watch.reloads["b"] == 2)


def refuse(check: Check) -> None:
    raise ControlError("no room")


@pytest.mark.parametrize("error", [ProbeError("no answer"), RuntimeError("the probe is broken")])
def test_model_whose_probes_fail_in_whatever_way_is_killed_and_reloaded(watched, error):
    one = watched(probe_interval_s=0.01, max_failed_probes=2)

    def probe(model: str, check: Check) -> None:
        if model == "b" and not one.models.reloading.is_set():
            raise error

    one.models.on_probe = probe
    one.start()
    assert one.models.reloading.wait(TIMEOUT_S)
    assert one.models.reloads == one.process.killed == ["b"]
    assert 'cosyvoice_failed_probes_total{model="b"} 0.0' not in one.counts.page()
    assert 'cosyvoice_failed_probes_total{model="a"} 0.0' in one.counts.page()


def test_server_that_answers_nothing_is_ended_and_no_model_blamed(watched):
    one = watched(probe_interval_s=0.01, max_failed_probes=2)
    one.models.answers = False

    def probe(model: str, check: Check) -> None:
        raise ProbeSilentError("no answer")

    one.models.on_probe = probe
    failure = one.start().failure()
    assert isinstance(failure, ServerSilentError)
    assert "tritonserver itself answers nothing: no answer in time" in str(failure)
    assert one.process.killed == one.models.reloads == []


def test_server_that_answers_nothing_is_not_asked_for_a_second_reload(watched):
    one = watched()
    one.models.answers = False

    def no_answer(check: Check) -> None:
        raise ControlError("no answer to unload")

    one.models.on_reload = no_answer
    one.start().process.living["a"] = 0
    assert isinstance(one.failure(), ServerSilentError)
    assert one.models.reloads == ["a"]


def test_server_that_ends_while_it_is_asked_has_ended_and_is_not_called_silent(watched):
    one = watched(probe_interval_s=0.01)

    def ends(check: Check) -> None:
        one.process.alive = False
        raise ControlError("refused")

    def probe(model: str, check: Check) -> None:
        raise ProbeError("no answer")

    one.models.require_server = ends
    one.models.on_probe = probe
    assert "exit code -9" in str(one.start().failure())


def test_model_that_answers_others_is_not_reloaded_for_want_of_time_for_a_probe(watched):
    one = watched(probe_interval_s=0.01, max_failed_probes=2)
    probes: list[bool] = []
    enough, stuck = threading.Event(), threading.Event()

    def probe(model: str, check: Check) -> None:
        if model == "b" and not one.models.reloading.is_set():
            probes.append(stuck.is_set())
            one.process.work += not stuck.is_set()
            if len(probes) == 20:
                enough.set()
            raise ProbeSilentError("no end of the answer in time")

    one.models.on_probe = probe
    one.start()
    assert enough.wait(TIMEOUT_S)
    assert not one.models.reloads
    stuck.set()
    assert one.models.reloading.wait(TIMEOUT_S)
    assert one.models.reloads == ["b"]


def test_of_two_silent_models_the_one_that_the_other_calls_is_reloaded(watched):
    one = watched(probe_interval_s=0.01, max_failed_probes=2)

    def probe(model: str, check: Check) -> None:
        if not one.models.reloading.is_set():
            raise ProbeError("no answer")

    one.models.on_probe = probe
    one.start()
    assert one.models.reloading.wait(TIMEOUT_S)
    assert one.models.reloads == ["a"]


def test_process_that_computes_for_a_silent_model_is_reloaded_with_it(watched):
    one = watched(probe_interval_s=0.01, max_failed_probes=2)
    one.models.homes = {"a": "b"}
    both = threading.Event()

    def probe(model: str, check: Check) -> None:
        if model == "a" and not both.is_set():
            raise ProbeError("no answer")

    one.models.on_probe = probe
    one.models.on_reload = lambda check: both.set() if len(one.models.reloads) == 2 else None
    one.start()
    assert both.wait(TIMEOUT_S)
    assert one.models.reloads == ["a", "b"]


def test_good_probe_between_two_bad_ones_starts_the_count_again(watched):
    one = watched(probe_interval_s=0.01, max_failed_probes=2)
    rounds: list[str] = []
    enough = threading.Event()

    def probe(model: str, check: Check) -> None:
        rounds.append(model)
        if len(rounds) > 40:
            enough.set()
        if len(rounds) % 4 == 1:
            raise ProbeError("now and then")

    one.models.on_probe = probe
    one.start()
    assert enough.wait(TIMEOUT_S)
    assert one.models.reloads == []


def test_of_two_dead_models_both_are_loaded_before_one_is_probed(watched):
    one = watched().start()
    one.process.living = Counter()
    eventually(lambda: one.watch.reloads == {"a": 1, "b": 1})
    assert one.models.events == [("load", "a"), ("load", "b"), ("probe", "a"), ("probe", "b")]


def test_probe_of_a_model_that_calls_a_dead_one_waits_for_its_reload(watched):
    one = watched()

    def probe(model: str, check: Check) -> None:
        if model == "b" and one.models.reloads == ["b"]:
            one.process.living["a"] = 0
            wait_for_ever(check)

    one.models.on_probe = probe
    one.start().process.living["b"] = 0
    eventually(lambda: one.watch.reloads == {"a": 1, "b": 1})
    assert one.models.reloads == ["b", "a"]
    assert one.models.events[-2:] == [("probe", "a"), ("probe", "b")]


def test_requests_that_died_with_an_entry_model_end_the_server(watched):
    one = watched().start()
    one.process.lost = {"b": 2}
    one.process.living["b"] = 0
    failure = one.failure()
    assert isinstance(failure, LostRequestsError)
    assert str(failure) == "b died with 2 requests in flight"
    assert one.models.reloads == []


def test_requests_that_die_with_an_entry_model_during_a_reload_end_the_server(watched):
    one = reloading(watched)
    one.process.lost = {"b": 2}
    one.process.living["b"] = 0
    assert isinstance(one.failure(), LostRequestsError)


def test_requests_that_died_with_a_stage_are_its_callers(watched):
    one = watched().start()
    one.process.lost = {"a": 2}
    one.process.living["a"] = 0
    eventually(lambda: one.watch.reloads == {"a": 1})


def test_server_whose_models_were_reloaded_often_ends_when_nothing_is_in_flight(watched):
    one = watched(restart_after_reloads=2).start()
    one.models.is_idle = False
    for reloads in (1, 2):
        one.process.living["a"] = 0
        eventually(lambda reloads=reloads: one.watch.reloads["a"] == reloads)
    assert not one._failed.wait(10 * SETTINGS.watch_interval_s)
    one.models.is_idle = True
    failure = one.failure()
    assert isinstance(failure, WornOutError)
    assert "reloaded 2 times, and nothing is in flight" in str(failure)


def test_death_is_noticed_long_before_the_next_look():
    with subprocess.Popen(["sleep", "600"]) as stub:
        one = Watched(watch_interval_s=60.0)
        one.process.pids = [stub.pid]
        one.start()
        assert one.process.asked.wait(TIMEOUT_S)
        one.process.living["a"], one.process.pids = 0, []
        stub.kill()
        assert one.models.reloading.wait(TIMEOUT_S / 4)
        one.watch.close()
    assert one.models.reloads == ["a"]
