"""Notices models whose processes died or that stopped answering, and has them reloaded."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.allowance import WINDOW_S, Allowance
from cosyvoice_runtime.supervisor.control import ControlError
from cosyvoice_runtime.supervisor.errors import RepairError, ServerDiedError, SupervisorError
from cosyvoice_runtime.supervisor.models import Models
from cosyvoice_runtime.supervisor.probe import ProbeError
from cosyvoice_runtime.supervisor.process import ServerProcess

logger = logging.getLogger(__name__)


class Watch:
    """A thread that looks at a server until it is closed or the server can't be kept up.

    Triton itself never restarts a model's process, and goes on calling the model ready.

    Args:
        on_failure: called once, with the reason, when the server can't be kept up.

    Attributes:
        reloads: how often each model was brought back.
    """

    def __init__(
        self,
        process: ServerProcess,
        models: Models,
        settings: ServerSettings,
        on_failure: Callable[[SupervisorError], None],
    ) -> None:
        self.reloads: Counter[str] = Counter()
        self._process = process
        self._models = models
        self._settings = settings
        self._on_failure = on_failure
        self._expected = process.count_stubs()
        self._allowances = defaultdict[str, Allowance](lambda: Allowance(settings.max_reloads))
        self._failed_probes: Counter[str] = Counter()
        self._closed = threading.Event()
        self._prober = ThreadPoolExecutor(1, thread_name_prefix="prober")
        self._round: Future[None] | None = None
        self._next_round = time.monotonic() + settings.probe_interval_s
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching; a reload under way is waited for."""
        self._closed.set()
        self._thread.join()
        self._prober.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        try:
            while not self._closed.wait(self._settings.watch_interval_s):
                self._look()
        except SupervisorError as error:
            logger.error("%s", error)
            self._on_failure(error)

    def _look(self) -> None:
        if not self._process.running():
            code = self._process.exit_code()
            raise ServerDiedError(f"tritonserver ended by itself with exit code {code}; see its log")
        missing = self._expected - self._process.count_stubs()
        for model in missing:
            self._reload(model, "its process died")
        for model in [name for name, count in self._failed_probes.items() if self._is_silent(count)]:
            self._reload(model, f"it failed {self._failed_probes[model]} probes in a row")
        self._start_round_when_due()

    def _is_silent(self, failed: int) -> bool:
        return failed >= self._settings.max_failed_probes

    def _reload(self, model: str, reason: str) -> None:
        if not self._allowances[model].take():
            times = self._settings.max_reloads
            raise RepairError(f"{model} was reloaded {times} times within {WINDOW_S:.0f} s")
        logger.error("%s is reloaded: %s", model, reason)
        started = time.monotonic()
        try:
            self._models.reload(model)
        except (ControlError, ProbeError) as error:
            logger.error("%s did not come back: %s", model, error)
            return
        self._failed_probes.pop(model, None)
        self.reloads[model] += 1
        logger.info(
            "%s is back after %.1f s, reload %d", model, time.monotonic() - started, self.reloads[model]
        )

    def _start_round_when_due(self) -> None:
        interval_s = self._settings.probe_interval_s
        idle = self._round is None or self._round.done()
        if interval_s and idle and time.monotonic() >= self._next_round:
            self._next_round = time.monotonic() + interval_s
            self._round = self._prober.submit(self._probe_round)

    def _probe_round(self) -> None:
        """In a thread of its own: the answer of a stuck model takes as long as its timeout."""
        for model in self._models.probed:
            if self._closed.is_set():
                return
            try:
                self._models.probe(model)
                self._failed_probes.pop(model, None)
            except ProbeError as error:
                self._failed_probes[model] += 1
                logger.warning("probe %d failed: %s", self._failed_probes[model], error)
