"""The watch over a server that is told to it: whatever goes wrong, somebody hears of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor import watch
from cosyvoice_runtime.supervisor.control import ControlError
from cosyvoice_runtime.supervisor.errors import (
    LostRequestsError,
    RepairError,
    ServerSilentError,
    SupervisorError,
    WatchError,
    WornOutError,
)
from cosyvoice_runtime.supervisor.probe import ProbeError, ProbeSilentError
from cosyvoice_runtime.supervisor.supervisor_metrics import SupervisorMetrics
from cosyvoice_runtime.supervisor.tries import GrowingPause
from cosyvoice_runtime.supervisor.watch import Watch
from eventually import eventually

TIMEOUT_S = 60.0
SETTINGS = ServerSettings(probe_interval_s=0.0, entry_models=("b",))


class FakeProcess:
    """A server of one process each of the models ``a`` and ``b``; its end ends all calls."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.living = {"a", "b"}
        self.killed: list[str] = []
        self.work = 0.0
        self.lost: dict[str, int] = {}
        self._changed = threading.Condition()

    def die(self, *models: str) -> None:
        with self._changed:
            self.living -= set(models)
            self._changed.notify_all()

    def start(self, model: str) -> None:
        with self._changed:
            self.living.add(model)

    def await_death(self, model: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: model not in self.living)

    def take_lost(self) -> dict[str, int]:
        return self.lost

    def work_done(self, model: str) -> float:
        return self.work

    def kill_stubs(self, model: str) -> None:
        self.killed.append(model)
        self.die(model)


class FakeModels:
    """Reloads as told; probes pass."""

    def __init__(self, process: FakeProcess) -> None:
        self.process = process
        self.reloads: list[str] = []
        self.events: list[tuple[str, str]] = []
        self.reloading = threading.Event()
        self.is_idle = True
        self.answers = True
        self.on_reload: Callable[[], None] = lambda: None
        self.on_probe: Callable[[str], None] = lambda model: None
        self.homes: dict[str, str] = {}

    def home(self, model: str) -> str:
        return self.homes.get(model, model)

    def require_server(self) -> None:
        if not self.answers:
            raise ControlError("no answer in time")

    def in_order(self, names: Collection[str] = ("a", "b")) -> list[str]:
        return sorted(names)

    def idle(self) -> bool:
        return self.is_idle

    def replace(self, model: str) -> None:
        self.reloads.append(model)
        self.events.append(("load", model))
        self.reloading.set()
        self.on_reload()
        self.process.start(model)

    def probe(self, model: str) -> None:
        self.events.append(("probe", model))
        self.on_probe(model)

    def hang(self) -> None:
        """A call that only the end of the server, or of the processes that it waits for, ends."""
        eventually(lambda: self.process.ended.is_set() or bool(self.process.killed), TIMEOUT_S)
        raise ControlError("no answer")


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
        self.watch = Watch(self.process, self.models, self.settings, self.counts, self._fail)
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
            one.process.ended.set()
            one.process.die("a", "b")


@pytest.fixture
def pauses(monkeypatch) -> list[float]:
    """The pauses that were told, each of which takes a thousandth of it."""
    told: list[float] = []

    class ShortPause(GrowingPause):
        def __init__(self) -> None:
            super().__init__(0.001, 0.03)

        def failed(self) -> float:
            told.append(round(1000 * super().failed()))
            return told[-1]

    monkeypatch.setattr(watch, "GrowingPause", ShortPause)
    return told


def test_unexpected_error_of_the_watch_ends_the_server_with_a_reason(watched):
    one = watched()

    def broken(model: str) -> None:
        raise PermissionError("/proc can't be read")

    one.process.await_death = broken
    one.watch = Watch(one.process, one.models, one.settings, one.counts, one.failures.append)
    eventually(lambda: bool(one.failures), TIMEOUT_S)
    failure = one.failures[0]
    assert isinstance(failure, WatchError)
    assert "/proc can't be read" in str(failure)
    assert failure.exit_code == 8


def test_unexpected_error_of_a_reload_ends_the_server_with_a_reason(watched):
    one = watched()

    def broken() -> None:
        raise KeyError("state")

    one.models.on_reload = broken
    one.start().process.die("a")
    assert isinstance(one.failure(), WatchError)


def test_process_that_died_before_the_watch_began_is_missed(watched):
    one = watched()
    one.process.die("a")
    one.start()
    assert one.models.reloading.wait(TIMEOUT_S)
    assert one.models.reloads == ["a"]


def reloading(watched):
    """One whose reload of ``a`` never ends."""
    one = watched()
    one.models.on_reload = one.models.hang
    one.start().process.die("a")
    assert one.models.reloading.wait(TIMEOUT_S)
    return one


def test_server_that_ends_during_a_reload_is_told_by_its_process_alone(watched):
    one = reloading(watched)
    one.process.ended.set()
    assert one.close_in_time()
    assert one.failures == []
    assert one.models.reloads == ["a"]


def test_reload_that_never_ends_is_given_up_when_the_server_is_to_stop(watched):
    one = reloading(watched)
    assert one.close_in_time()
    assert one.failures == []
    assert set(one.process.killed) == {"a"}  # Triton answers no unload before


def test_reload_that_fails_is_tried_again_until_it_was_tried_too_often(watched, pauses):
    one = watched(max_reloads=3)
    one.models.on_reload = refuse
    one.start().process.die("b")
    assert isinstance(one.failure(), RepairError)
    assert one.models.reloads == ["b"] * 3
    assert 'cosyvoice_restarts_total{process="b"} 3.0' in one.counts.page()
    assert 'cosyvoice_restarts_total{process="a"} 0.0' in one.counts.page()


@pytest.mark.parametrize("how", ["does not load", "dies silently", "dies in its probe"])
def test_model_that_does_not_come_back_is_tried_again_after_pauses_that_grow(watched, pauses, how):
    one = watched()
    if how == "does not load":
        one.models.on_reload = refuse

    def die(model: str) -> None:
        one.process.die("b")
        if how == "dies silently":
            one.models.hang()
        raise ProbeError("no answer")

    one.models.on_probe = die
    one.start().process.die("b")
    eventually(lambda: len(pauses) >= 8)
    assert pauses[:8] == [1, 2, 4, 8, 16, 30, 30, 30]
    assert one.failures == []


def test_model_pauses_and_another_one_that_dies_meanwhile_is_reloaded_at_once(watched):
    one = watched()
    one.models.on_reload = refuse
    one.start().process.die("b")
    assert one.models.reloading.wait(TIMEOUT_S)
    one.process.die("a")
    eventually(lambda: one.models.reloads[:2] == ["b", "a"])


def test_pause_ends_at_once_with_a_stop(watched, monkeypatch):
    monkeypatch.setattr(watch, "GrowingPause", lambda: GrowingPause(TIMEOUT_S * 10))
    one = watched()
    one.models.on_reload = refuse
    one.start().process.die("b")
    assert one.models.reloading.wait(TIMEOUT_S)
    assert one.close_in_time()
    assert one.failures == []
    assert one.models.reloads == ["b"]


def test_model_that_came_back_is_reloaded_at_once_the_next_time(watched, pauses):
    one = watched()
    one.models.on_reload = refuse
    one.start().process.die("b")
    eventually(lambda: len(one.models.reloads) >= 3)
    one.models.on_reload = lambda: None
    eventually(lambda: one.watch.reloads["b"] == 1)
    assert not one.watch._pauses["b"].left_s
    one.process.die("b")
    eventually(lambda: one.watch.reloads["b"] == 2)


def refuse() -> None:
    raise ControlError("no room")


@pytest.mark.parametrize("error", [ProbeError("no answer"), RuntimeError("the probe is broken")])
def test_model_whose_probes_fail_in_whatever_way_is_killed_and_reloaded(watched, error):
    one = watched(probe_interval_s=0.01, max_failed_probes=2)

    def probe(model: str) -> None:
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

    def probe(model: str) -> None:
        raise ProbeSilentError("no answer")

    one.models.on_probe = probe
    failure = one.start().failure()
    assert isinstance(failure, ServerSilentError)
    assert "tritonserver itself answers nothing: no answer in time" in str(failure)
    assert one.process.killed == one.models.reloads == []


def test_server_that_answers_nothing_is_not_asked_for_a_second_reload(watched):
    one = watched()
    one.models.answers = False

    def no_answer() -> None:
        raise ControlError("no answer to unload")

    one.models.on_reload = no_answer
    one.start().process.die("a")
    assert isinstance(one.failure(), ServerSilentError)
    assert one.models.reloads == ["a"]


def test_server_that_ends_while_it_is_asked_has_ended_and_is_not_called_silent(watched):
    one = watched(probe_interval_s=0.01)

    def ends() -> None:
        one.process.ended.set()
        raise ControlError("refused")

    def probe(model: str) -> None:
        raise ProbeError("no answer")

    one.models.require_server = ends
    one.models.on_probe = probe
    one.start()
    assert one.process.ended.wait(TIMEOUT_S)
    assert one.close_in_time()
    assert one.failures == []


def test_model_that_answers_others_is_not_reloaded_for_want_of_time_for_a_probe(watched):
    one = watched(probe_interval_s=0.01, max_failed_probes=2)
    probes: list[bool] = []
    enough, stuck = threading.Event(), threading.Event()

    def probe(model: str) -> None:
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

    def probe(model: str) -> None:
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

    def probe(model: str) -> None:
        if model == "a" and not both.is_set():
            raise ProbeError("no answer")

    one.models.on_probe = probe
    one.models.on_reload = lambda: both.set() if len(one.models.reloads) == 2 else None
    one.start()
    assert both.wait(TIMEOUT_S)
    assert sorted(one.models.reloads) == ["a", "b"]


def test_good_probe_between_two_bad_ones_starts_the_count_again(watched):
    one = watched(probe_interval_s=0.01, max_failed_probes=2)
    rounds: list[str] = []
    enough = threading.Event()

    def probe(model: str) -> None:
        rounds.append(model)
        if len(rounds) > 40:
            enough.set()
        if len(rounds) % 4 == 1:
            raise ProbeError("now and then")

    one.models.on_probe = probe
    one.start()
    assert enough.wait(TIMEOUT_S)
    assert one.models.reloads == []


def test_two_models_that_die_together_are_loaded_once_and_probed_after_that(watched):
    one = watched().start()
    one.process.die("a", "b")
    eventually(lambda: one.watch.reloads == {"a": 1, "b": 1})
    events = one.models.events
    assert sorted(one.models.reloads) == ["a", "b"]
    assert all(events.index(("load", model)) < events.index(("probe", model)) for model in ("a", "b"))


def test_probe_of_a_model_that_calls_a_dead_one_waits_for_its_reload(watched):
    one = watched()

    def probe(model: str) -> None:
        if model == "b" and one.models.reloads == ["b"]:
            one.process.die("a")
            one.models.hang()

    one.models.on_probe = probe
    one.start().process.die("b")
    eventually(lambda: one.watch.reloads == {"a": 1, "b": 1})
    assert one.models.reloads == ["b", "a"]
    assert one.models.events[-2:] == [("probe", "a"), ("probe", "b")]


def test_requests_that_died_with_an_entry_model_end_the_server(watched):
    one = watched().start()
    one.process.lost = {"b": 2}
    one.process.die("b")
    failure = one.failure()
    assert isinstance(failure, LostRequestsError)
    assert str(failure) == "b died with 2 requests in flight"
    assert one.models.reloads == []


def test_requests_that_die_with_an_entry_model_during_a_reload_end_the_server(watched):
    one = reloading(watched)
    one.process.lost = {"b": 2}
    one.process.die("b")
    assert isinstance(one.failure(), LostRequestsError)


def test_requests_that_died_with_a_stage_are_its_callers(watched):
    one = watched().start()
    one.process.lost = {"a": 2}
    one.process.die("a")
    eventually(lambda: one.watch.reloads == {"a": 1})


def test_server_whose_models_were_reloaded_often_ends_when_nothing_is_in_flight(watched):
    one = watched(restart_after_reloads=2).start()
    one.models.is_idle = False
    for reloads in (1, 2):
        one.process.die("a")
        eventually(lambda reloads=reloads: one.watch.reloads["a"] == reloads)
    assert not one._failed.wait(2 * watch.IDLE_INTERVAL_S)
    one.models.is_idle = True
    failure = one.failure()
    assert isinstance(failure, WornOutError)
    assert "reloaded 2 times, and nothing is in flight" in str(failure)
