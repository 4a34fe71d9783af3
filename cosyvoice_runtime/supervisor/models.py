"""The models of a running server: loaded, probed, reloaded and unloaded in the right order."""

from __future__ import annotations

import logging
import platform
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path

from cosyvoice_runtime.metrics.page import read_progress, read_request_counts
from cosyvoice_runtime.process import processes
from cosyvoice_runtime.settings import ServerSettings
from cosyvoice_runtime.supervisor.calls import Control, ControlError, ProbeError, ProbeFunction
from cosyvoice_runtime.supervisor.errors import StartError
from cosyvoice_runtime.supervisor.process import ServerProcess, kill

logger = logging.getLogger(__name__)

PARALLEL_LOADS = 4
"""The number of threads with which Triton loads models."""
DRAIN_INTERVAL_S = 0.05
LIVE_TRIES = 3
IDLE_LOOKS = 2
"""The checks after which a model is idle: a request between Triton's queue and its model is counted by
neither for less than an interval."""
REPORT_INTERVAL_S = 10.0
LOAD_ATTEMPTS = 3
"""The attempts at a load that Triton has abandoned (:func:`awaited_processes`); other failures are final."""
WAIT4 = {"x86_64": "61", "aarch64": "260"}.get(platform.machine())
"""The number of the system call that waits for a process."""


class Models:
    """The models of one server.

    Args:
        names: every model of the repository.
        probes: probes by model; a model without one only has to load.
        grpc_url: address to which probes are sent.

    Attributes:
        loading: the model that is being loaded again, if any.
    """

    def __init__(
        self,
        names: Sequence[str],
        server: ServerProcess,
        control: Control,
        probes: Mapping[str, ProbeFunction],
        grpc_url: str,
        settings: ServerSettings,
    ) -> None:
        self.loading: str | None = None
        self._draining = False
        self._server = server
        self._control = control
        self._probes = probes
        self._grpc_url = grpc_url
        self._settings = settings
        self._entries = [name for name in names if name in settings.entry_models]
        self._children = [name for name in names if name not in settings.entry_models]

    def in_order(self, names: Collection[str] | None = None) -> list[str]:
        """These models, by default all, with those that call others last."""
        ordered = [*self._children, *self._entries]
        return ordered if names is None else [name for name in ordered if name in names]

    def bring_up(self) -> None:
        """Load every model and probe it, those that call others last; a StartError tells of one that fails.

        An entry model loads while others do, and waits for the engine before it measures the speed.
        """
        for name in self.in_order():
            if name not in self._probes:
                logger.warning("%s has no probe: only that it loads is known of it", name)
        # The loads are limited: tritonserver has crashed when a slow machine started many processes at once.
        _concurrently(self._load, "load", self.in_order(), self._far)
        # Entry models are probed one by one: a slow machine has capacity for one utterance only.
        for group in (self._children, *([name] for name in self._entries)):
            _concurrently(self.probe, "answer", group)

    def _far(self, name: str) -> str:
        progress = read_progress(self._server.metrics).get(name)
        return name if progress is None else f"{name} ({progress})"

    def probe(self, name: str) -> None:
        """Probe a model; a ProbeError tells that it does not answer as it should."""
        if name in self._probes:
            self._probes[name](self._grpc_url, self._settings.probe_timeout_s)

    def server_answers(self) -> bool:
        """Whether tritonserver itself answers, whatever the state of its models."""
        return self._control.live(LIVE_TRIES)

    def replace(self, name: str) -> None:
        """Start new processes of a model in place of its dead ones; a ControlError if it can't be loaded."""
        self._control.unload(name)
        self._load(name)
        if self._draining and name in self._entries:
            self._control.unload(name)

    def unload_all(self, hurry: threading.Event) -> None:
        """Wait for the requests in flight, then refuse new ones, first those that cause others.

        A model that is being loaded again is left alone: Triton answers no unload of it before the end of the
        load, and waits for ever if a process is killed in its first tenth of a second.

        Raises:
            ControlError: they do not finish in time, the server can't be asked, or ``hurry`` was set.
        """
        self._draining = True
        limit_s = self._settings.drain_timeout_s
        deadline = time.monotonic() + limit_s
        try:
            self._wait_until_idle(self._entries, deadline, hurry)  # The gateways begin no utterance.
            for group in (self._entries, self._children):
                for name in group:
                    if name == self.loading:
                        continue
                    self._control.unload(name, max(0.1, deadline - time.monotonic()))
                self._wait_until_idle(group, deadline, hurry)
        except ControlError as error:
            if hurry.is_set():
                raise ControlError("told not to wait") from error
            if time.monotonic() >= deadline:
                raise ControlError(f"not done within {limit_s:g} s: {error}") from error
            raise

    def _load(self, name: str) -> None:
        awaited: set[int] = set()
        ended: set[int] = set()

        def end_stalled() -> None:
            """Kill processes for which Triton has waited since the last check: it would wait without a
            limit."""
            seen = awaited_processes(self._server.session, name)
            for pid in seen & awaited:
                kill(pid)
                ended.add(pid)
            awaited.clear()
            awaited.update(seen)

        for attempts_left in reversed(range(LOAD_ATTEMPTS)):
            ended.clear()
            try:
                self._control.load(name, self._settings.start_timeout_s, end_stalled)
                break
            except ControlError as error:
                if not (ended and attempts_left):
                    raise
                logger.warning("%s: Triton gave up its process, which was slow: once more (%s)", name, error)

    def _wait_until_idle(self, group: Sequence[str], deadline: float, hurry: threading.Event) -> None:
        idle_looks = 0
        while idle_looks < IDLE_LOOKS:
            busy = self._busy(group)
            if busy and time.monotonic() >= deadline:
                raise ControlError(f"still in use: {', '.join(busy)}")
            idle_looks = 0 if busy else idle_looks + 1
            if hurry.wait(DRAIN_INTERVAL_S):
                raise ControlError("told not to wait")

    def _busy(self, group: Sequence[str]) -> list[str]:
        """The models with requests in progress, as they report them.

        A finished request counts as in flight for Triton as long as its client keeps the stream open.
        """
        queued = self._control.queued_requests()
        in_work = read_request_counts(self._server.metrics)
        return [name for name in group if in_work.get(name, 0) + queued[name]]


def awaited_processes(server: int, model: str) -> set[int]:
    """The living processes of a model whose end tritonserver awaits; none where /proc is not readable.

    A model's process that is silent for a second while it starts, as on a machine with more work than cores,
    counts as dead for Triton (python_backend 24.10, ``StubLauncher::ReceiveMessageFromStub``). Triton then
    waits for the end of that process before it tells anybody (``StubLauncher::Launch``,
    ``WaitForStubProcess``), but the process lives and waits for Triton. Every later load waits behind it.

    Args:
        server: the process id of tritonserver.
    """
    awaited = set()
    for thread in Path(f"/proc/{server}/task").glob("*/syscall"):
        with suppress(OSError):  # The thread has ended, or this process may not read its state.
            number, *arguments = thread.read_text().split()
            if number == WAIT4:
                awaited.add(int(arguments[0], 16))
    return {each.pid for each in processes.living() if each.pid in awaited and each.model == model}


def _concurrently(
    action: Callable[[str], None], verb: str, names: Sequence[str], far: Callable[[str], str] = str
) -> None:
    """Run an action for several models concurrently, and log how long each took; a StartError if one fails.

    Args:
        far: the name of a model, and how far it is.
    """
    started = time.monotonic()
    pool = ThreadPoolExecutor(PARALLEL_LOADS, thread_name_prefix=verb)
    try:
        pending = {pool.submit(copy_context().run, action, name): name for name in names}
        while pending:
            done = wait(pending, REPORT_INTERVAL_S, FIRST_COMPLETED).done
            for future in done:
                name = pending.pop(future)
                try:
                    future.result()
                except (ControlError, ProbeError) as error:
                    raise StartError(f"{name} did not {verb}: {error}") from error
                logger.info("%s %sed after %.1f s", name, verb, time.monotonic() - started)
            if not done:
                logger.info("still waiting for %s to %s", ", ".join(map(far, pending.values())), verb)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
