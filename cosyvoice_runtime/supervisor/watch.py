"""Notices models whose processes died or that stopped answering, and has them reloaded."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress

from cosyvoice_runtime.processes import is_alive
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.allowance import WINDOW_S, Allowance
from cosyvoice_runtime.supervisor.errors import (
    LostRequestsError,
    RepairError,
    ServerDiedError,
    ServerSilentError,
    StopRequestedError,
    SupervisorError,
    WatchError,
    WornOutError,
)
from cosyvoice_runtime.supervisor.growing_pause import GrowingPause
from cosyvoice_runtime.supervisor.guarded_call import Check
from cosyvoice_runtime.supervisor.http_call import ControlError
from cosyvoice_runtime.supervisor.models import Models
from cosyvoice_runtime.supervisor.probe import ProbeError
from cosyvoice_runtime.supervisor.probe_rounds import ProbeRounds
from cosyvoice_runtime.supervisor.process import ServerProcess
from cosyvoice_runtime.supervisor.supervisor_metrics import SupervisorMetrics

logger = logging.getLogger(__name__)

DEATH_INTERVAL_S = 0.1
"""Time between two looks whether known processes live, which takes a fiftieth of a millisecond each."""


class Watch:
    """A thread that looks at a server until it is closed or the server can't be kept up.

    Triton itself never restarts a model's process, and goes on calling the model ready.

    Args:
        counts: of what is reloaded and of probes that fail.
        on_failure: called once, with the reason, when the server can't be kept up or the watch itself fails.
        expected: processes of each model.

    Attributes:
        reloads: how often each model was brought back.
    """

    def __init__(
        self,
        process: ServerProcess,
        models: Models,
        settings: ServerSettings,
        counts: SupervisorMetrics,
        on_failure: Callable[[SupervisorError], None],
        expected: Counter[str],
    ) -> None:
        self.reloads: Counter[str] = Counter()
        self._process = process
        self._models = models
        self._settings = settings
        self._counts = counts
        self._on_failure = on_failure
        self._expected = expected
        self._allowances = defaultdict[str, Allowance](lambda: Allowance(settings.max_reloads))
        self._pauses = defaultdict[str, GrowingPause](GrowingPause)
        self._unproven: dict[str, float] = {}
        """Models loaded again and not probed yet, and when their reload began."""
        self._looked = 0.0
        self._closed = threading.Event()
        self._rounds = ProbeRounds(
            models.probed, self._probe, process.work_done, counts.probe_failed, settings.probe_interval_s
        )
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching; a reload under way is given up."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._wait():
                self._look()
        except StopRequestedError:
            pass
        except WornOutError as error:
            self._on_failure(error)
        except SupervisorError as error:
            logger.error("%s", error)
            self._on_failure(error)
        except Exception as error:
            logger.exception("the watch over the models failed, so the server is stopped")
            self._on_failure(WatchError(f"the watch over the models failed: {error!r}"))
        finally:
            self._rounds.close()

    def _wait(self) -> bool:
        """Until the next look is due, or a model's process ends; False when told to stop."""
        stubs = self._process.stubs()
        due = time.monotonic() + self._settings.watch_interval_s
        while all(is_alive(pid) for pid in stubs) and (left_s := due - time.monotonic()) > 0:
            if self._closed.wait(min(left_s, DEATH_INTERVAL_S)):
                return False
        return not self._closed.is_set()

    def _look(self) -> None:
        self._require_server()
        if dead := self._dead():
            self._require_no_request_lost()
            for model in self._models.in_order(dead):
                if self._unproven.pop(model, None) is not None:
                    self._not_back(model, "it died again before it answered")
                if self._pauses[model].over:
                    self._replace(model, "its process died")
        elif self._unproven:
            self._prove(self._models.in_order(self._unproven))
        elif failed := self._rounds.silent(1):
            with suppress(_AnotherDeathError):  # which the next look sees
                self._require_answers(f"{failed[0]} failed a probe", self._require_all)
                self._end_silent()
        else:
            self._require_freshness()

    def _dead(self) -> set[str]:
        return set(self._expected - self._process.count_stubs())

    def _end_silent(self) -> None:
        """Replace the first model that failed too many probes: others may fail because they call it.

        Whether it or the process that computes for it is stuck can't be told, so both are replaced.
        """
        silent = self._rounds.silent(self._settings.max_failed_probes)
        if not silent:
            return
        probed = silent[0]
        models = self._models.in_order({self._models.home(probed), probed})
        if not all(self._pauses[model].over for model in models):
            return
        for model in models:
            # Else Triton waits for the requests of the stuck process before it loads the model again.
            self._process.kill_stubs(model)
        self._require_no_request_lost()
        for model in models:
            self._replace(model, f"{probed} failed {self._settings.max_failed_probes} probes in a row")

    def _require_no_request_lost(self) -> None:
        """Raises when clients wait for answers that a dead process owed: no reload ends their streams."""
        lost = self._process.take_lost()
        for model in self._settings.entry_models:
            if lost.get(model):
                raise LostRequestsError(f"{model} died with {lost[model]} requests in flight")

    def _replace(self, model: str, reason: str) -> None:
        if not self._allowances[model].take():
            times = self._settings.max_reloads
            raise RepairError(f"{model} was reloaded {times} times within {WINDOW_S:.0f} s")
        logger.error("%s is reloaded: %s", model, reason)
        self._counts.started_again(model)
        started = time.monotonic()
        try:
            self._models.replace(model, self._require_no_loss)
        except ControlError as error:
            self._not_back(model, error)
            self._require_answers(f"{model} did not come back", self._require_use)
        except SupervisorError:
            # Triton answers no unload of a model before its load has ended, and a stop begins with unloads.
            self._process.kill_stubs(model)
            raise
        else:
            self._unproven[model] = started

    def _prove(self, models: Sequence[str]) -> None:
        """Probe models that were loaded again; put off when another one has died, which they may call."""
        with suppress(_AnotherDeathError):
            for model in models:
                self._prove_one(model)

    def _prove_one(self, model: str) -> None:
        try:
            self._models.probe(model, self._require_all)
        except ProbeError as error:
            self._not_back(model, error)
            del self._unproven[model]
            return
        self._pauses[model].succeeded()
        self._rounds.start_again()
        self.reloads[model] += 1
        seconds = time.monotonic() - self._unproven.pop(model)
        logger.info("%s is back after %.1f s, reload %d", model, seconds, self.reloads[model])

    def _not_back(self, model: str, reason: object) -> None:
        pause_s = self._pauses[model].failed()
        logger.error(
            "%s did not come back, and is loaded in %g s at the earliest: %s", model, pause_s, reason
        )

    def _require_freshness(self) -> None:
        """Raises when the models were reloaded often and nobody uses the server just now."""
        limit, reloads = self._settings.restart_after_reloads, self.reloads.total()
        with suppress(ControlError):  # a server that can't be asked is not known to be idle
            if limit and reloads >= limit and self._models.idle(self._require_use):
                raise WornOutError(f"its models were reloaded {reloads} times, and nothing is in flight")

    def _require_answers(self, reason: str, check: Check) -> None:
        """Raises when tritonserver itself answers nothing: what looks like a model's fault is none then."""
        try:
            self._models.require_server(check)
        except ControlError as error:
            self._require_use()  # it may just have ended
            raise ServerSilentError(f"{reason}, and tritonserver itself answers nothing: {error}") from error

    def _probe(self, model: str) -> None:
        self._models.probe(model, self._require_use)

    def _require_no_loss(self) -> None:
        """Raises when it makes no sense to wait for a load, or somebody's answers will never come."""
        self._require_use()
        if self._looks_again():
            self._require_no_request_lost()

    def _require_all(self) -> None:
        """Raises when it makes no sense to wait for a model that may call others."""
        self._require_use()
        if self._looks_again() and self._dead():
            raise _AnotherDeathError

    def _looks_again(self) -> bool:
        """Whether it is time for another look at the processes, which is now then."""
        now = time.monotonic()
        if now - self._looked <= self._settings.watch_interval_s:
            return False
        self._looked = now
        return True

    def _require_use(self) -> None:
        """Raises when it makes no sense to wait for the server any more."""
        if self._closed.is_set():
            raise StopRequestedError("told to stop")
        self._require_server()

    def _require_server(self) -> None:
        if not self._process.running():
            code = self._process.exit_code()
            raise ServerDiedError(f"tritonserver ended by itself with exit code {code}; see its log")


class _AnotherDeathError(Exception):
    """A model died while another one was probed."""
