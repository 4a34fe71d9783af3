"""Forms of kernels compiled in forked processes, into the Triton language's cache, while others are found."""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess

from cosyvoice_runtime.compilation.forms import Compiled, Form

PR_SET_PDEATHSIG = 1
"""The option of Linux's ``prctl`` that asks for a signal at the parent's end."""

_fork = multiprocessing.get_context("fork")


class ForkedCompiler:
    """Compiles each form in a process of its own, which is forked: a form can't be sent.

    Use it in a process that has not opened a GPU. The first form is compiled in this process, so that the
    others inherit what a first compilation loads.

    Args:
        processes: that compile at a time.
        told: called with each form when it is compiled.
        measured: as in :meth:`Form.compile`.
    """

    def __init__(self, processes: int, told: Callable[[Compiled], None], measured: bool = False) -> None:
        self._processes, self._told, self._measured = processes, told, measured
        self._warm = False
        self._running: dict[Connection, tuple[Form, ForkProcess]] = {}

    def take(self, form: Form) -> None:
        """Begin to compile a form, as soon as fewer processes than allowed compile."""
        if not self._warm:
            self._warm = True
            self._told(form.compile(self._measured))
            return
        while len(self._running) >= self._processes:
            self._await_some()
        answer, telling = _fork.Pipe(duplex=False)
        process = _fork.Process(target=_compile, args=(form, self._measured, telling))
        process.start()
        telling.close()
        self._running[answer] = form, process

    def finish(self) -> None:
        """Wait for all that was begun."""
        while self._running:
            self._await_some()

    def _await_some(self) -> None:
        for answer in wait(list(self._running)):
            assert isinstance(answer, Connection)
            form, process = self._running.pop(answer)
            try:
                compiled = answer.recv()
            except EOFError:
                process.join()
                compiled = Compiled(form.name, form.sizes, failure=f"its process ended: {process.exitcode}")
            answer.close()
            process.join()
            self._told(compiled)


def _compile(form: Form, measured: bool, telling: Connection) -> None:
    """Compile a form in a forked process, which ends with the one that forked it, as it holds its lock."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    telling.send(form.compile(measured))
