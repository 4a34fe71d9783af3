"""The interface by which the speech LM and token2wav share a GPU in one process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from cosyvoice_runtime.gpu.partitions.partition import GpuPart, GpuParts


class SharedGpu(Protocol):
    """A GPU that the speech LM and token2wav share.

    Attributes:
        parts: partitions of the GPU, if it is divided.
        steps: the partition for steps of the speech LM now; None while they have the whole GPU.
        turns_at_once: batches that may be in progress; the next one is launched before the last one ends.
    """

    turns_at_once: int

    @property
    def parts(self) -> GpuParts | None: ...

    @property
    def steps(self) -> GpuPart | None: ...

    @property
    def stands_still(self) -> bool:
        """Whether steps without a waiting listener should pause: a first chunk uses their partition."""

    def when_free(self, tell: Callable[[], None]) -> None:
        """Take a function to call when such a first chunk has ended and ``stands_still`` has changed."""

    def few(self, utterances: int) -> bool:
        """Choose the division for this number of utterances, and return whether it is the one for few."""

    def divide_for_few(self) -> None:
        """Enable the division for few utterances, whose calls are now captured."""

    def leave(self, later: Sequence[Later]) -> bool:
        """Leave work of the speech LM that can be prepared during service, in place of what it left before;
        returns False if that has been taken already."""

    def take_later(self) -> Sequence[Later]:
        """Take what :meth:`leave` left, once."""

    def turn(self) -> AbstractContextManager[bool]:
        """Run a batch of token2wav in the block; the value says whether it had to wait."""

    def first_chunk(self, utterances: int) -> AbstractContextManager[None]:
        """Compute first chunks in the block, on the steps' partition.

        Args:
            utterances: utterances in progress before these begin.
        """

    def step(self, hurried: bool) -> AbstractContextManager[None]:
        """Run a step of the speech LM in the block.

        Args:
            hurried: whether a listener waits for first tokens.
        """

    def rest(self) -> None:
        """Note that the speech LM has no step to run for now."""


Later = Callable[[Callable[[], None]], None]
"""A function that prepares what is missing, and calls its argument after each small part."""
SharedGpus = Mapping[int | None, SharedGpu]
"""The shared GPUs by number."""
NOT_SHARED: SharedGpus = MappingProxyType({})


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
        """Do nothing: steps never pause."""

    def leave(self, later: Sequence[Later]) -> bool:  # noqa: ARG002
        """False: no work is left for a division for few."""
        return False

    def take_later(self) -> Sequence[Later]:
        """An empty sequence: nothing is left."""
        return ()


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
