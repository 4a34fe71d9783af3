"""The models of a running server: loaded, probed, reloaded and unloaded in the right order."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.control import Control, ControlError
from cosyvoice_runtime.supervisor.errors import StartError
from cosyvoice_runtime.supervisor.probe import ProbeError, ProbeFunction

logger = logging.getLogger(__name__)

Check = Callable[[], None]
"""Called while waiting; raises when waiting makes no sense any more."""

PARALLEL_LOADS = 4
"""Triton's own number of threads that load models."""
CHECK_INTERVAL_S = 0.2
DRAIN_INTERVAL_S = 0.05
IDLE_LOOKS = 2
"""A request between Triton's queue and its model is seen by neither, for less than a drain interval."""
REPORT_INTERVAL_S = 10.0


class Models:
    """
    Args:
        names: every model of the repository.
        probes: by model; one without a probe only has to load.
        grpc_url: where probes are sent.
        inflight: requests queued or in work, of each model that tells.
    """

    def __init__(
        self,
        names: Sequence[str],
        control: Control,
        probes: Mapping[str, ProbeFunction],
        grpc_url: str,
        inflight: Callable[[], Mapping[str, int]],
        settings: ServerSettings,
    ) -> None:
        self._control = control
        self._probes = probes
        self._grpc_url = grpc_url
        self._inflight = inflight
        self._settings = settings
        self._entries = [name for name in names if name in settings.entry_models]
        self._children = [name for name in names if name not in settings.entry_models]

    @property
    def probed(self) -> list[str]:
        return list(self._probes)

    def load_all(self, check: Check) -> None:
        """Load every model, the ones that call others last, then probe every model in the same order.

        Raises:
            StartError: a model does not load or does not answer.
        """
        for name in (*self._children, *self._entries):
            if name not in self._probes:
                logger.warning("%s has no probe: only that it loads is known of it", name)
        for action, verb, past in ((self._load, "load", "loaded"), (self.probe, "answer", "answered")):
            for group in (self._children, self._entries):
                for name, seconds in _side_by_side(action, verb, group, check):
                    logger.info("%s %s after %.1f s", name, past, seconds)

    def probe(self, name: str) -> None:
        """Raises: ProbeError: the model does not answer as it should."""
        if name in self._probes:
            self._probes[name](self._grpc_url, self._settings.probe_timeout_s)

    def reload(self, name: str) -> None:
        """Replace a model's dead or stuck processes by new ones.

        Raises:
            ControlError, ProbeError: it does not come back.
        """
        self._control.unload(name)
        self._load(name)
        self.probe(name)

    def unload_all(self, timeout_s: float, hurry: threading.Event) -> bool:
        """Refuse new requests, first those that cause others, and wait until those in flight are answered.

        Returns:
            False when the time was up, or ``hurry`` set, before.
        """
        deadline = time.monotonic() + timeout_s
        for group in (self._entries, self._children):
            for name in group:
                self._control.unload(name)
            if not self._wait_until_idle(group, deadline, hurry):
                return False
        return True

    def _load(self, name: str) -> None:
        self._control.load(name, self._settings.start_timeout_s)

    def _wait_until_idle(self, group: Sequence[str], deadline: float, hurry: threading.Event) -> bool:
        idle_looks = 0
        while idle_looks < IDLE_LOOKS:
            busy = self._busy(group)
            if busy and (hurry.is_set() or time.monotonic() > deadline):
                logger.warning("still in use: %s", ", ".join(busy))
                return False
            idle_looks = 0 if busy else idle_looks + 1
            hurry.wait(DRAIN_INTERVAL_S)
        return True

    def _busy(self, group: Sequence[str]) -> list[str]:
        """Models not unloaded, unless they tell themselves that they have nothing left to do.

        A finished request counts as in flight for Triton as long as its client keeps the stream open.
        """
        states = self._control.states()
        loaded = [name for name in group if states.get(name, "UNAVAILABLE") != "UNAVAILABLE"]
        inflight = self._inflight()
        return [name for name in loaded if inflight.get(name, 1)]


def _side_by_side(
    action: Callable[[str], None], verb: str, names: Sequence[str], check: Check
) -> Iterator[tuple[str, float]]:
    """Run an action for several models at once; yields each with its duration when it is done."""
    started = time.monotonic()
    report_at = started + REPORT_INTERVAL_S
    pool = ThreadPoolExecutor(PARALLEL_LOADS, thread_name_prefix=verb)
    try:
        pending: dict[Future[None], str] = {pool.submit(action, name): name for name in names}
        while pending:
            done = wait(pending, CHECK_INTERVAL_S, FIRST_COMPLETED).done
            check()  # first: why the server is gone says more than that an action failed with it
            for future in done:
                name = pending.pop(future)
                _require_success(future, f"{name} did not {verb}")
                yield name, time.monotonic() - started
            if time.monotonic() > report_at:
                logger.info("still waiting for %s to %s", ", ".join(pending.values()), verb)
                report_at += REPORT_INTERVAL_S
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _require_success(future: Future[None], failure: str) -> None:
    try:
        future.result()
    except (ControlError, ProbeError) as error:
        raise StartError(f"{failure}: {error}") from error
