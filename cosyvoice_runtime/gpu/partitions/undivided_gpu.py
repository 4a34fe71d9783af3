"""A device of which nobody has a part."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cosyvoice_runtime.gpu.partitions.partition import GpuPart, GpuParts
    from cosyvoice_runtime.gpu.partitions.shared_gpu import Later


class UndividedGpu:
    """What a :class:`SharedGpu` says that is not divided."""

    parts: GpuParts | None = None
    steps: GpuPart | None = None
    stands_still = False

    def few(self, utterances: int) -> bool:  # noqa: ARG002
        """False: nothing is divided."""
        return False

    def divide_for_few(self) -> None:
        """Changes nothing."""

    def puts_off(self, utterances: int, first_waits: bool) -> bool:  # noqa: ARG002
        """False: no part for turns is kept free."""
        return False

    def first_chunk(self, utterances: int) -> AbstractContextManager[None]:  # noqa: ARG002
        """Nobody makes room."""
        return nullcontext()

    def hands_over(self) -> None:
        """Nobody makes room."""

    def leave(self, later: Sequence[Later]) -> bool:  # noqa: ARG002
        """False: nothing is for few alone."""
        return False

    def take_later(self) -> Sequence[Later]:
        """Nothing."""
        return ()
