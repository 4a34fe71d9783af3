"""A device without partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cosyvoice_runtime.gpu.partitions.partition import GpuPart, GpuParts
    from cosyvoice_runtime.gpu.partitions.shared_gpu import Later


class UndividedGpu:
    """The answers of a :class:`SharedGpu` without partitions."""

    parts: GpuParts | None = None
    steps: GpuPart | None = None
    stands_still = False

    def few(self, utterances: int) -> bool:  # noqa: ARG002
        """False: there are no divisions."""
        return False

    def divide_for_few(self) -> None:
        """Do nothing: there are no divisions."""

    def first_chunk(self, utterances: int) -> AbstractContextManager[None]:  # noqa: ARG002
        """Compute first chunks without making room."""
        return nullcontext()

    def when_free(self, tell: Callable[[], None]) -> None:
        """Steps never stand still."""

    def leave(self, later: Sequence[Later]) -> bool:  # noqa: ARG002
        """False: no work is left for a division for few."""
        return False

    def take_later(self) -> Sequence[Later]:
        """An empty sequence: nothing is left."""
        return ()
