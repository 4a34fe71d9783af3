"""Forms of kernels compiled in several processes, into the Triton language's cache."""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from cosyvoice_runtime.compilation.forms import Compiled, Form

PR_SET_PDEATHSIG = 1
"""The option of Linux's ``prctl`` that asks for a signal at the parent's end."""

_forms: Sequence[Form] = ()
"""The forms of the processes that are forked next, which inherit them: they can't be sent."""


def compile_forms(forms: Sequence[Form], processes: int, measured: bool = False) -> Iterator[Compiled]:
    """Compile forms, and give each as soon as it is done.

    Call it in a process that has not opened a GPU: it is forked.

    Args:
        processes: that compile at a time.
        measured: as in :meth:`Form.compile`.
    """
    global _forms
    _forms = forms
    context = multiprocessing.get_context("fork")
    compile_one: Callable[[int], Compiled] = partial(_compile, measured=measured)
    with context.Pool(max(1, min(processes, len(forms))), _die_with_parent) as pool:
        yield from pool.imap_unordered(compile_one, range(len(forms)))


def _die_with_parent() -> None:
    """End with the process that forked this one, however that ends: this one holds its lock, too."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _compile(number: int, measured: bool) -> Compiled:
    return _forms[number].compile(measured)
