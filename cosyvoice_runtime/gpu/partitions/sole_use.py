"""A device on which one network computes alone."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext

from cosyvoice_runtime.gpu.partitions.undivided_gpu import UndividedGpu


class SoleUse(UndividedGpu):
    """As a :class:`SharedGpu` that is not shared: nobody waits."""

    turns_at_once = sys.maxsize

    def turn(self) -> AbstractContextManager[bool]:
        """In which token2wav computes, at once."""
        return nullcontext(False)

    def step(self, hurried: bool) -> AbstractContextManager[None]:  # noqa: ARG002
        """In which the speech LM makes a step."""
        return nullcontext()

    def rest(self) -> None:
        """Nobody waits for that."""
