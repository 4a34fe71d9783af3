"""A device on which only one network computes."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext

from cosyvoice_runtime.gpu.partitions.undivided_gpu import UndividedGpu


class SoleUse(UndividedGpu):
    """A :class:`SharedGpu` with one user, which never waits."""

    turns_at_once = sys.maxsize

    def turn(self) -> AbstractContextManager[bool]:
        """Run a batch of token2wav in the block, at once."""
        return nullcontext(False)

    def step(self, hurried: bool) -> AbstractContextManager[None]:  # noqa: ARG002
        """Run a step of the speech LM in the block, at once."""
        return nullcontext()

    def rest(self) -> None:
        """Do nothing: no batch waits for the speech LM."""
