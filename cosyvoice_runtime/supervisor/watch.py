"""Notices models whose processes died or that stopped answering, and has them reloaded."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable

from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.allowance import WINDOW_S, Allowance
from cosyvoice_runtime.supervisor.errors import (
    RepairError,
    ServerDiedError,
    StopRequestedError,
    SupervisorError,
    WatchError,
)
from cosyvoice_runtime.supervisor.http_call import ControlError
from cosyvoice_runtime.supervisor.models import Models
from cosyvoice_runtime.supervisor.probe import ProbeError
from cosyvoice_runtime.supervisor.probe_rounds import ProbeRounds
from cosyvoice_runtime.supervisor.process import ServerProcess

logger = logging.getLogger(__name__)


class Watch:
    """A thread that looks at a server until it is closed or the server can't be kept up.

    Triton itself never restarts a model's process, and goes on calling the model ready.

    Args:
        on_failure: called once, with the reason, when the server can't be kept up or the watch itself fails.

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
        self._closed = threading.Event()
        self._rounds = ProbeRounds(models.probed, self._probe, process.work_done, settings.probe_interval_s)
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching; a reload under way is given up."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._closed.wait(self._settings.watch_interval_s):
                self._look()
        except StopRequestedError:
            pass
        except SupervisorError as error:
            logger.error("%s", error)
            self._on_failure(error)
        except Exception as error:
            logger.exception("the watch over the models failed, so the server is stopped")
            self._on_failure(WatchError(f"the watch over the models failed: {error!r}"))
        finally:
            self._rounds.close()

    def _look(self) -> None:
        self._require_server()
        for model in self._expected - self._process.count_stubs():
            self._reload(model, "its process died")
        silent = self._rounds.silent(self._settings.max_failed_probes)
        if silent:
            model = silent[0]  # one at a time: the others may fail because they call it
            # Else Triton waits for the requests of the stuck process before it loads the model again.
            self._process.kill_stubs(model)
            self._reload(model, f"it failed {self._settings.max_failed_probes} probes in a row")

    def _reload(self, model: str, reason: str) -> None:
        if not self._allowances[model].take():
            times = self._settings.max_reloads
            raise RepairError(f"{model} was reloaded {times} times within {WINDOW_S:.0f} s")
        logger.error("%s is reloaded: %s", model, reason)
        started = time.monotonic()
        try:
            self._models.reload(model, self._require_use)
        except (ControlError, ProbeError) as error:
            logger.error("%s did not come back: %s", model, error)
            return
        self._rounds.start_again()
        self.reloads[model] += 1
        logger.info(
            "%s is back after %.1f s, reload %d", model, time.monotonic() - started, self.reloads[model]
        )

    def _probe(self, model: str) -> None:
        self._models.probe(model, self._require_use)

    def _require_use(self) -> None:
        """Raises when it makes no sense to wait for the server any more."""
        if self._closed.is_set():
            raise StopRequestedError("told to stop")
        self._require_server()

    def _require_server(self) -> None:
        if not self._process.running():
            code = self._process.exit_code()
            raise ServerDiedError(f"tritonserver ended by itself with exit code {code}; see its log")
