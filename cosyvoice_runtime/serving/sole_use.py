"""A device on which one network computes alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cosyvoice_runtime.gpu_parts import GpuPart, GpuParts
    from cosyvoice_runtime.serving.shared_gpu import Later


class SoleUse:
    """As a :class:`SharedGpu` that is not shared: nobody waits, and nothing is divided."""

    parts: GpuParts | None = None
    steps: GpuPart | None = None
    turns_at_once = sys.maxsize

    def few(self, utterances: int) -> bool:  # noqa: ARG002
        """False."""
        return False

    def divide_for_few(self) -> None:
        """Changes nothing."""

    def puts_off(self, utterances: int, first_waits: bool) -> bool:  # noqa: ARG002
        """False."""
        return False

    def leave(self, later: Sequence[Later]) -> bool:  # noqa: ARG002
        """False."""
        return False

    def take_later(self) -> Sequence[Later]:
        """Nothing."""
        return ()

    def turn(self) -> AbstractContextManager[None]:
        """In which token2wav computes."""
        return nullcontext()

    def step(self, hurried: bool) -> AbstractContextManager[None]:  # noqa: ARG002
        """In which the speech LM makes a step."""
        return nullcontext()

    def rest(self) -> None:
        """Nobody waits for that."""
