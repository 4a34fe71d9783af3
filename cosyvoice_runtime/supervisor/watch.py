"""Notices models whose processes died or that stopped answering, and has them reloaded."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.control import ControlError
from cosyvoice_runtime.supervisor.errors import (
    LostRequestsError,
    RepairError,
    ServerSilentError,
    SupervisorError,
    WatchError,
    WornOutError,
)
from cosyvoice_runtime.supervisor.models import Models
from cosyvoice_runtime.supervisor.probe import ProbeSilentError
from cosyvoice_runtime.supervisor.process import ServerProcess
from cosyvoice_runtime.supervisor.supervisor_metrics import SupervisorMetrics
from cosyvoice_runtime.supervisor.tries import WINDOW_S, Allowance, GrowingPause

logger = logging.getLogger(__name__)

IDLE_INTERVAL_S = 1.0
"""Between two looks whether a server whose models were reloaded often is used."""
END_S = 0.5
"""For which a server that answers nothing may turn out to have ended."""
CLOSE_S, CLOSE_INTERVAL_S = 5.0, 0.1


class Watch:
    """Keeps the models of a server up until it is closed or the server can't be kept up.

    Triton itself never restarts a model's process, and goes on calling the model ready. So a thread waits for
    the end of each model's processes, and one loads the dead models again, those that call others last. One
    sends probes: a model that does not answer them is killed, and then comes back as every dead one.

    Args:
        counts: of what is reloaded and of probes that fail.
        on_failure: called with the reason when the server can't be kept up or the watch itself fails.

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
    ) -> None:
        self.reloads: Counter[str] = Counter()
        self._process = process
        self._models = models
        self._settings = settings
        self._counts = counts
        self._on_failure = on_failure
        self._loads: Counter[str] = Counter()
        self._loading: str | None = None
        self._dead: dict[str, str] = {}
        """Models that are to be loaded again, and why."""
        self._silent: dict[str, str] = {}
        """Models that were ended because they answered no probe, which is told of them."""
        self._unproven: dict[str, float] = {}
        """Models that were loaded again and answered no probe yet, and when their reload began."""
        self._proofs = 0
        self._failed_probes: Counter[str] = Counter()
        self._allowances = defaultdict[str, Allowance](lambda: Allowance(settings.max_reloads))
        self._pauses = defaultdict[str, GrowingPause](GrowingPause)
        self._closed = threading.Event()
        self._wake = threading.Event()
        for model in models.in_order():
            self._expect(model)
        self._repairs = self._in_thread(self._repair)
        if settings.probe_interval_s:
            self._in_thread(self._send_probes)

    def close(self) -> None:
        """Stop watching; a reload under way is given up."""
        self._closed.set()
        self._wake.set()
        deadline = time.monotonic() + CLOSE_S
        while self._repairs.is_alive() and time.monotonic() < deadline:
            if model := self._loading:  # Triton answers no unload of a model before its load has ended
                self._process.kill_stubs(model)
            self._repairs.join(CLOSE_INTERVAL_S)

    def _in_thread(self, work: Callable[..., None], *arguments: object) -> threading.Thread:
        def run() -> None:
            try:
                work(*arguments)
            except SupervisorError as error:
                self._fail(error)
            except Exception as error:
                logger.exception("the watch over the models failed, so the server is stopped")
                self._fail(WatchError(f"the watch over the models failed: {error!r}"))

        thread = threading.Thread(target=run, name=f"watch {work.__name__}", daemon=True)
        thread.start()
        return thread

    def _fail(self, error: SupervisorError) -> None:
        if not self._over:
            self._on_failure(error)

    @property
    def _over(self) -> bool:
        """Whether the server is being stopped, or has ended, so that its models are nobody's concern."""
        return self._closed.is_set() or self._process.ended.is_set()

    def _expect(self, model: str) -> None:
        self._loads[model] += 1
        self._in_thread(self._await_death, model, self._loads[model])

    def _await_death(self, model: str, load: int) -> None:
        self._process.await_death(model)
        if self._over or load != self._loads[model]:
            return
        self._require_no_request_lost()
        self._dead[model] = self._silent.pop(model, "its process died")
        self._wake.set()

    def _require_no_request_lost(self) -> None:
        """Raises when clients wait for answers that a dead process owed: no reload ends their streams."""
        lost = self._process.take_lost()
        for model in self._settings.entry_models:
            if lost.get(model):
                raise LostRequestsError(f"{model} died with {lost[model]} requests in flight")

    def _repair(self) -> None:
        while not self._over:
            self._wake.wait(self._until_next_look_s())
            self._wake.clear()
            loaded = [self._reload(model) for model in self._models.in_order({*self._dead})]
            if any(loaded):
                self._proofs += 1
                self._in_thread(self._prove, self._models.in_order({*self._unproven}), self._proofs)
            self._require_freshness()

    def _until_next_look_s(self) -> float | None:
        """None for as long as nothing happens."""
        waits = [self._pauses[model].left_s for model in list(self._dead)]
        return min([*waits, IDLE_INTERVAL_S] if self._is_worn() else waits, default=None)

    def _reload(self, model: str) -> bool:
        """Load a dead model unless it has to pause; returns: whether it is there again."""
        if self._unproven.pop(model, None) is not None:
            self._not_back(model, "it died again before it answered")
        if self._pauses[model].left_s or self._over:
            return False
        if not self._allowances[model].take():
            times = self._settings.max_reloads
            raise RepairError(f"{model} was reloaded {times} times within {WINDOW_S:.0f} s")
        logger.error("%s is reloaded: %s", model, self._dead[model])
        self._counts.started_again(model)
        started = time.monotonic()
        self._loads[model] += 1  # what is left of its processes ends now
        self._loading = model
        try:
            self._models.replace(model)
        except ControlError as error:
            if not self._over:
                self._not_back(model, error)
                self._require_answers(f"{model} did not come back")
            return False
        finally:
            self._loading = None
        self._unproven[model] = started
        del self._dead[model]
        self._expect(model)
        return True

    def _prove(self, models: Sequence[str], proof: int) -> None:
        """Probe models that were loaded again, which count as back then."""
        for model in models:
            try:
                self._models.probe(model)
            except CosyVoiceError as error:
                if self._dead or self._loading or proof != self._proofs:
                    return  # another one has died, which it may call: all are probed after the next load
                if self._unproven.pop(model, None) is not None:
                    self._not_back(model, error)
            else:
                self._is_back(model)

    def _is_back(self, model: str) -> None:
        started = self._unproven.pop(model, None)
        if started is None:
            return
        self._pauses[model].succeeded()
        self._failed_probes.clear()
        self.reloads[model] += 1
        seconds = time.monotonic() - started
        logger.info("%s is back after %.1f s, reload %d", model, seconds, self.reloads[model])
        self._wake.set()

    def _not_back(self, model: str, reason: object) -> None:
        pause_s = self._pauses[model].failed()
        logger.error(
            "%s did not come back, and is loaded in %g s at the earliest: %s", model, pause_s, reason
        )

    def _is_worn(self) -> bool:
        limit = self._settings.restart_after_reloads
        return bool(limit) and self.reloads.total() >= limit

    def _require_freshness(self) -> None:
        """Raises when the models were reloaded often and nobody uses the server just now."""
        with suppress(ControlError):  # a server that can't be asked is not known to be idle
            if self._is_worn() and not (self._dead or self._unproven) and self._models.idle():
                times = self.reloads.total()
                raise WornOutError(f"its models were reloaded {times} times, and nothing is in flight")

    def _send_probes(self) -> None:
        while not self._closed.wait(self._settings.probe_interval_s):
            for model in self._models.in_order():
                self._send_probe(model)

    def _send_probe(self, model: str) -> None:
        """Probe a model; one that does not answer in time, and meanwhile answers others, is busy."""
        if self._over:
            return
        before = self._process.work_done(model)
        try:
            self._models.probe(model)
        except Exception as error:
            if self._over:
                return
            if isinstance(error, ProbeSilentError) and self._process.work_done(model) > before:
                logger.info("%s is too busy for a probe", model)
            else:
                self._note_failed_probe(model, error)
                return
        self._failed_probes.pop(model, None)

    def _note_failed_probe(self, model: str, error: Exception) -> None:
        self._counts.probe_failed(model)
        self._failed_probes[model] += 1
        failed = self._failed_probes[model]
        unexpected = None if isinstance(error, CosyVoiceError) else error
        logger.warning("probe %d of %s failed: %s", failed, model, error, exc_info=unexpected)
        self._require_answers(f"{model} failed a probe")
        if failed >= self._settings.max_failed_probes and not (self._dead or self._unproven):
            self._end_silent(model, f"{model} failed {failed} probes in a row")

    def _end_silent(self, model: str, reason: str) -> None:
        """End a model that answers no probe; that ends its requests, for which Triton would wait.

        Whether it or the process that computes for it is stuck can't be told, so both are ended.
        """
        self._failed_probes.clear()  # of others, too, which may fail because they call it
        both = self._models.in_order({self._models.home(model), model})
        self._silent |= dict.fromkeys(both, reason)
        for each in both:
            self._process.kill_stubs(each)

    def _require_answers(self, reason: str) -> None:
        """Raises when tritonserver itself answers nothing: what looks like a model's fault is none then."""
        try:
            self._models.require_server()
        except ControlError as error:
            if not self._process.ended.wait(END_S):
                raise ServerSilentError(
                    f"{reason}, and tritonserver itself answers nothing: {error}"
                ) from error
