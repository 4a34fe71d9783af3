"""The models of a running server: loaded, probed, reloaded and unloaded in the right order."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial

from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.control import Control
from cosyvoice_runtime.supervisor.errors import StartError
from cosyvoice_runtime.supervisor.guarded_call import CHECK_INTERVAL_S, Check
from cosyvoice_runtime.supervisor.http_call import ControlError
from cosyvoice_runtime.supervisor.probe import ProbeError, ProbeFunction
from cosyvoice_runtime.supervisor.stalled_load import StalledLoad

logger = logging.getLogger(__name__)

PARALLEL_LOADS = 4
"""Triton's own number of threads that load models."""
DRAIN_INTERVAL_S = 0.05
IDLE_LOOKS = 2
"""A request on its way from Triton's queue to its model is counted by neither, for less than an interval."""
REPORT_INTERVAL_S = 10.0
LOAD_ATTEMPTS = 3
"""Of a load that stalls (``stalled_load.py``); any other failure stands."""


class Models:
    """
    Args:
        names: every model of the repository.
        probes: by model; one without a probe only has to load.
        grpc_url: where probes are sent.
        inflight: requests queued or in work, of each model that tells.
        server: process id of tritonserver.
        home: the model in whose process a model computes.
    """

    def __init__(
        self,
        names: Sequence[str],
        control: Control,
        probes: Mapping[str, ProbeFunction],
        grpc_url: str,
        inflight: Callable[[Check], Mapping[str, int]],
        server: Callable[[], int],
        settings: ServerSettings,
        home: Callable[[str], str] = lambda model: model,
    ) -> None:
        self.home = home
        self._control = control
        self._probes = probes
        self._grpc_url = grpc_url
        self._inflight = inflight
        self._server = server
        self._settings = settings
        self._entries = [name for name in names if name in settings.entry_models]
        self._children = [name for name in names if name not in settings.entry_models]

    @property
    def probed(self) -> list[str]:
        """Models that have a probe, those that call others last."""
        return self.in_order(self._probes)

    def load_all(self, check: Check) -> None:
        """Load every model, the ones that call others last.

        Raises:
            StartError: a model does not load.
            Exception: what ``check`` raises, soon after.
        """
        for name in (*self._children, *self._entries):
            if name not in self._probes:
                logger.warning("%s has no probe: only that it loads is known of it", name)
        load = partial(self._load, check=check)
        # Not all at once: this tritonserver has aborted when a slow machine started so many processes.
        for group in (self._children, self._entries):
            for name, seconds in _side_by_side(load, "load", group, check):
                logger.info("%s loaded after %.1f s", name, seconds)

    def probe_all(self, check: Check) -> None:
        """Probe every model, in the order in which they are loaded.

        Raises:
            StartError: a model does not answer.
            Exception: what ``check`` raises, soon after.
        """
        probe = partial(self.probe, check=check)
        # Entry models one by one: a slow machine has a place for one utterance, and refuses another.
        for group in (self._children, *([name] for name in self._entries)):
            for name, seconds in _side_by_side(probe, "answer", group, check):
                logger.info("%s answered after %.1f s", name, seconds)

    def probe(self, name: str, check: Check) -> None:
        """
        Raises:
            ProbeError: the model does not answer as it should.
            Exception: what ``check`` raises, soon after.
        """
        if name in self._probes:
            self._probes[name](self._grpc_url, self._settings.probe_timeout_s, check)

    def require_server(self, check: Check) -> None:
        """
        Raises:
            ControlError: tritonserver itself answers nothing, whatever its models do.
            Exception: what ``check`` raises, soon after.
        """
        self._control.require_live(check)

    def in_order(self, names: Collection[str]) -> list[str]:
        """These models, those that call others last."""
        return [name for name in (*self._children, *self._entries) if name in names]

    def replace(self, name: str, check: Check) -> None:
        """Start new processes of a model in place of its dead ones.

        Raises:
            ControlError: it can't be loaded.
            Exception: what ``check`` raises, soon after.
        """
        self._control.unload(name, check)
        self._load(name, check)

    def idle(self, check: Check) -> bool:
        """Whether no model has a request queued or in work.

        Raises:
            ControlError: the server can't be asked.
            Exception: what ``check`` raises, soon after.
        """
        return not any(self._inflight(check).values())

    def unload_all(self, check: Check) -> None:
        """Refuse new requests, first those that cause others, and wait until those in flight are answered.

        Raises:
            ControlError: the server can't be asked, or ``check`` raised it while requests were in flight.
        """
        for group in (self._entries, self._children):
            for name in group:
                self._control.unload(name, check)
            self._wait_until_idle(group, check)

    def _load(self, name: str, check: Check) -> None:
        for attempts_left in reversed(range(LOAD_ATTEMPTS)):
            stalled = StalledLoad(self._server(), name)
            try:
                self._control.load(name, self._settings.start_timeout_s, _each(check, stalled.look))
                break
            except ControlError as error:
                if not (stalled.ended and attempts_left):
                    raise
                logger.warning("%s: Triton gave up its process, which was slow: once more (%s)", name, error)

    def _wait_until_idle(self, group: Sequence[str], check: Check) -> None:
        idle_looks = 0
        while idle_looks < IDLE_LOOKS:
            busy = self._busy(group, check)
            if busy:
                _require_patience(check, busy)
            idle_looks = 0 if busy else idle_looks + 1
            time.sleep(DRAIN_INTERVAL_S)

    def _busy(self, group: Sequence[str], check: Check) -> list[str]:
        """Models not unloaded, unless they tell themselves that they have nothing left to do.

        A finished request counts as in flight for Triton as long as its client keeps the stream open.
        """
        states = self._control.states(check)
        loaded = [name for name in group if states.get(name, "UNAVAILABLE") != "UNAVAILABLE"]
        inflight = self._inflight(check)
        return [name for name in loaded if inflight.get(name, 1)]


def _each(*checks: Check) -> Check:
    """All of them as one."""

    def check() -> None:
        for each in checks:
            each()

    return check


def _require_patience(check: Check, busy: Sequence[str]) -> None:
    try:
        check()
    except ControlError as error:
        raise ControlError(f"{error}; still in use: {', '.join(busy)}") from None


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
