"""Verifiers of a deployment's own, which judge a segment by its sound."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from importlib import import_module

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.errors import InvalidInput

Verdict = bool | Sequence[str]
"""True or an empty list stands for right; each text of a list says what is wrong."""
Verifier = Callable[[Floats, int, str], Verdict]
"""Judges a segment by its audio: float32 samples ``[n]``, their rate, and the text that they should say.

Its ``at_once``, 1 without it, is the number of threads that may call it at the same time.
"""
Judge = Callable[[Floats, int, str], Awaitable[Verdict]]
"""A verifier that an event loop waits for."""


def load_verifier(name: str, field: str = "verifier") -> Verifier:
    """An object of the class that is named as ``MODULE:CLASS`` and takes no arguments.

    Raises:
        InvalidInput: there is no such class, or a package that it needs is missing; `field` names it.
    """
    module, _, kind = name.partition(":")
    try:
        verifier: Verifier = getattr(import_module(module), kind)()
    except (ImportError, ValueError, AttributeError, TypeError) as error:
        raise InvalidInput(field, name, f"MODULE:CLASS ({error})") from error
    return verifier


def in_threads(verifier: Verifier) -> Judge:
    """The verifier in threads of its own; who can't be judged yet waits."""
    pool = ThreadPoolExecutor(getattr(verifier, "at_once", 1), thread_name_prefix="verifier")

    async def judge(samples: Floats, rate: int, text: str) -> Verdict:
        return await asyncio.get_running_loop().run_in_executor(pool, verifier, samples, rate, text)

    return judge


def within(judge: Judge, block: Callable[[], AbstractContextManager[None]]) -> Judge:
    """The judge, each of whose calls is within such a block."""

    async def judged(samples: Floats, rate: int, text: str) -> Verdict:
        with block():
            return await judge(samples, rate, text)

    return judged
