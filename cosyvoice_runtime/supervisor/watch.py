"""The watch over models: those whose processes died, or that stopped answering, are loaded again."""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from functools import partial

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.metrics.page import sum_of_counters, take_lost_counts
from cosyvoice_runtime.process.named_log import named_thread
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.calls import ControlError, ProbeSilentError
from cosyvoice_runtime.supervisor.errors import (
    ServerDiedError,
    ServerStuckError,
    SupervisorError,
    WatchError,
)
from cosyvoice_runtime.supervisor.metrics import SupervisorMetrics
from cosyvoice_runtime.supervisor.models import Models
from cosyvoice_runtime.supervisor.process import ServerProcess

logger = logging.getLogger(__name__)

MOST_RELOADS = 20
"""The most reloads, after which the server is restarted: each leaves threads and memory behind."""
END_S = 0.5
"""The time in which a server that answers nothing may turn out to have ended."""
LOOK_INTERVAL_S = 0.1
"""The time between two checks of processes, where the kernel does not report their end."""


class Watch:
    """Keeps the models of a server up until it is closed or the server can't be kept up.

    Triton itself never restarts a model's process, and goes on calling the model ready. So one thread waits
    for the end of the models' processes and loads the dead models again, those that call others last. One
    sends probes: a model that does not answer them is killed, and then comes back as every dead one. A model
    that can't be loaded again ends the server, which is then started anew.

    Args:
        home: by model, the model in whose process it computes.
        counts: counts reloads and failed probes.
        on_failure: called with the reason when the server can't be kept up or the watch itself fails.

    Attributes:
        reloads: how often each model was brought back.
    """

    def __init__(
        self,
        server: ServerProcess,
        models: Models,
        home: Callable[[str], str],
        settings: ServerSettings,
        counts: SupervisorMetrics,
        on_failure: Callable[[SupervisorError], None],
    ) -> None:
        self.reloads: Counter[str] = Counter()
        self._server = server
        self._models = models
        self._home = home
        self._settings = settings
        self._counts = counts
        self._on_failure = on_failure
        self._processes = server.stubs()
        self._tries = 0
        self._unproven: dict[str, float] = {}
        """The reloaded models that have not answered a probe yet, and when their reload began."""
        self._failed_probes: Counter[str] = Counter()
        self._closed = threading.Event()
        self._probe_now = threading.Event()
        self._reload_lock = threading.Lock()
        self._woken, self._wake = os.pipe()
        for work in (self._keep_up, self._send_probes):
            named_thread(partial(self._run, work), f"watch {work.__name__}").start()

    def close(self) -> None:
        """Begin no further reload; one that is in progress ends by itself, or with the server."""
        with self._reload_lock:
            self._closed.set()
        self._probe_now.set()
        os.close(self._wake)

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except SupervisorError as error:
            self._fail(error)
        except Exception as error:
            logger.exception("the watch over the models failed, so the server is stopped")
            self._fail(WatchError(f"the watch over the models failed: {error!r}"))

    def _fail(self, error: SupervisorError) -> None:
        if not self._over:
            self._on_failure(error)

    @property
    def _over(self) -> bool:
        """Whether the server is stopping, or has ended, so that its models need no repair."""
        return self._closed.is_set() or not self._server.running()

    def _keep_up(self) -> None:
        with os.fdopen(self._woken, "rb"):
            while not self._over:
                dead = self._dead()
                if dead:
                    self._require_no_request_lost()
                for model in dead:
                    self._reload(model)
                if not dead:
                    wait_for_end(set().union(*self._processes.values()), self._woken)

    def _dead(self) -> list[str]:
        """The models with dead processes, in the order of their reload."""
        living = set().union(*self._server.stubs().values())
        known = self._processes
        return [model for model in self._models.in_order() if not known[model] or not known[model] <= living]

    def _require_no_request_lost(self) -> None:
        """Raise an error if clients wait for answers of a dead process: no reload ends their streams."""
        lost = take_lost_counts(self._server.metrics)
        for model in self._settings.entry_models:
            if lost.get(model):
                raise ServerStuckError(f"{model} died with {lost[model]} requests in flight")

    def _reload(self, model: str) -> None:
        with self._reload_lock:
            if self._over:
                return
            self._models.loading = model
        self._tries += 1
        if self._tries > MOST_RELOADS:
            raise ServerDiedError(f"its models were reloaded {MOST_RELOADS} times")
        started = time.monotonic()
        logger.error("%s is reloaded: its process died", model)
        self._counts.restarts.labels(model).inc()
        try:
            self._models.replace(model)
        except ControlError as error:
            self._require_answers(f"{model} did not come back")
            raise ServerDiedError(f"{model} did not come back: {error}") from error
        finally:
            self._models.loading = None
        self._processes[model] = self._server.stubs()[model]
        self._unproven[model] = started
        self._probe_now.set()

    def _send_probes(self) -> None:
        while not self._over:
            reloaded = self._probe_now.wait(self._settings.probe_interval_s or None)
            self._probe_now.clear()
            for model in self._models.in_order({*self._unproven} if reloaded else None):
                if not self._over:
                    self._send_probe(model)

    def _send_probe(self, model: str) -> None:
        """Probe a model; one that misses its time, but answers other requests, is busy."""
        started, before = self._unproven.get(model), sum_of_counters(self._server.metrics, model)
        try:
            self._models.probe(model)
        except Exception as error:
            if self._over:
                return
            silent = isinstance(error, ProbeSilentError)
            if not (silent and sum_of_counters(self._server.metrics, model) > before):
                self._note_failed_probe(model, error)
                return
            logger.info("%s is too busy for a probe", model)
        self._failed_probes.pop(model, None)
        if started is not None and started == self._unproven.get(model):
            seconds = time.monotonic() - self._unproven.pop(model)
            self._failed_probes.clear()
            self.reloads[model] += 1
            logger.info("%s is back after %.1f s, reload %d", model, seconds, self.reloads[model])

    def _note_failed_probe(self, model: str, error: Exception) -> None:
        self._counts.failed_probes.labels(model).inc()
        self._failed_probes[model] += 1
        failed = self._failed_probes[model]
        unexpected = None if isinstance(error, CosyVoiceError) else error
        logger.warning("probe %d of %s failed: %s", failed, model, error, exc_info=unexpected)
        self._require_answers(f"{model} failed a probe")
        if failed >= self._settings.max_failed_probes and not (self._models.loading or self._dead()):
            logger.error("%s failed %d probes in a row and is ended", model, failed)
            # Whether it or the process that computes for it is stuck can't be told, so both are ended.
            self._failed_probes.clear()  # The failures of models that call it are forgotten as well.
            for each in self._models.in_order({self._home(model), model}):
                self._server.kill_stubs(each)

    def _require_answers(self, reason: str) -> None:
        """Raise an error if tritonserver itself answers nothing, so that no model is at fault."""
        if not self._models.server_answers() and not self._server.ended.wait(END_S):
            raise ServerStuckError(f"{reason}, and tritonserver itself answers nothing")


def wait_for_end(pids: Iterable[int], woken: int) -> None:
    """Return when one of these processes ends, or the pipe with this reading end is closed."""
    timeout_ms = None
    with ExitStack() as files, suppress(ProcessLookupError):  # The process has just ended.
        events = select.poll()
        events.register(woken, select.POLLIN)
        for pid in pids:
            try:
                process = os.pidfd_open(pid)
            except ProcessLookupError:
                raise
            except OSError:  # A kernel or sandbox may lack pidfd.
                timeout_ms = 1000 * LOOK_INTERVAL_S
            else:
                files.callback(os.close, process)
                events.register(process, select.POLLIN)
        events.poll(timeout_ms)
