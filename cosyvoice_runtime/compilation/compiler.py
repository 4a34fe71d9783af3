"""Forms of kernels compiled in several processes, into the Triton language's cache, as they are found."""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from functools import partial

from cosyvoice_runtime.compilation.forms import Compiled, Form

PR_SET_PDEATHSIG = 1
"""The option of Linux's ``prctl`` that asks for a signal at the parent's end."""


class ForkedCompiler:
    """Compiles forms in processes that are forked with the first one, so that they need not import torch.

    Use it in a process that has not opened a GPU.

    Args:
        processes: that compile at a time.
        told: called with each form when it is compiled, by a thread.
        measured: as in :meth:`Form.compile`.
    """

    def __init__(self, processes: int, told: Callable[[Compiled], None], measured: bool = False) -> None:
        self._told, self._measured = told, measured
        fork = multiprocessing.get_context("fork")
        self._pool = ProcessPoolExecutor(processes, fork, _die_with_parent)
        self._begun: list[Future[Compiled]] = []

    def take(self, form: Form) -> None:
        """Begin to compile a form, or let it wait until a process is free."""
        compiling = self._pool.submit(form.compile, self._measured)
        compiling.add_done_callback(partial(self._tell, form))
        self._begun.append(compiling)

    def when_done(self, call: Callable[[], object]) -> None:
        """Have a thread call when all that was begun so far is compiled."""

        def call_then(begun: Sequence[Future[Compiled]]) -> None:
            wait(begun)
            call()

        threading.Thread(target=call_then, args=[list(self._begun)], daemon=True).start()

    def finish(self) -> None:
        """Wait for all that was begun."""
        self._pool.shutdown()

    def _tell(self, form: Form, compiling: Future[Compiled]) -> None:
        lost = compiling.exception()
        self._told(Compiled(form.name, form.sizes, failure=repr(lost)) if lost else compiling.result())


def _die_with_parent() -> None:
    """End with the process that forked this one, however that ends: this one holds its lock, too."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
