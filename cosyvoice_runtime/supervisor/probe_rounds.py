"""Probes of every model, one round after another."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.supervisor.probe import ProbeSilentError

logger = logging.getLogger(__name__)


class ProbeRounds:
    """A thread that probes models until closed, and counts the failures in a row of each.

    The thread is its own because the answer of a stuck model takes as long as its timeout.

    A model that does not answer its probe in time, and meanwhile answers others, is busy: nothing is counted.

    Args:
        models: probed in this order.
        probe: called with a model's name; whatever it raises counts as a failed probe.
        work_done: a number that grows with what a model has done.
        failed: called with the name of a model whose probe has failed.
        interval_s: pause before each round; 0 for no rounds at all.
    """

    def __init__(
        self,
        models: Sequence[str],
        probe: Callable[[str], None],
        work_done: Callable[[str], float],
        failed: Callable[[str], None],
        interval_s: float,
    ) -> None:
        self._models = models
        self._probe = probe
        self._work_done = work_done
        self._tell_failed = failed
        self._interval_s = interval_s
        self._failed: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        if interval_s:
            threading.Thread(target=self._run, name="prober", daemon=True).start()

    def close(self) -> None:
        """Probe no more. A probe under way ends by its own timeout or check."""
        self._closed.set()

    def silent(self, failures: int) -> list[str]:
        """Models that failed so often in a row, or more often, in the order in which they are probed."""
        with self._lock:
            return [model for model in self._models if self._failed[model] >= failures]

    def start_again(self) -> None:
        """Count all failures from zero."""
        with self._lock:
            self._failed.clear()

    def _run(self) -> None:
        while not self._closed.wait(self._interval_s):
            for model in self._models:
                self._probe_one(model)

    def _probe_one(self, model: str) -> None:
        if self._closed.is_set():
            return
        try:
            busy = self._is_too_busy(model)
        except Exception as error:
            self._note_failure(model, error)
        else:
            self._forget_failures(model)
            if busy:
                logger.info("%s is too busy for a probe", model)

    def _is_too_busy(self, model: str) -> bool:
        """Probe a model; whether it did other work only.

        Raises:
            Exception: it neither answered nor did anything else.
        """
        before = self._work_done(model)
        try:
            self._probe(model)
        except ProbeSilentError:
            if self._work_done(model) <= before:
                raise
            return True
        return False

    def _forget_failures(self, model: str) -> None:
        with self._lock:
            self._failed.pop(model, None)

    def _note_failure(self, model: str, error: Exception) -> None:
        if self._closed.is_set():
            return
        self._tell_failed(model)
        with self._lock:
            self._failed[model] += 1
            count = self._failed[model]
        unexpected = None if isinstance(error, CosyVoiceError) else error
        logger.warning("probe %d of %s failed: %s", count, model, error, exc_info=unexpected)
