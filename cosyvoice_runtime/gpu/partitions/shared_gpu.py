"""A GPU on which the speech LM and token2wav compute in one process: how they share it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from cosyvoice_runtime.gpu.partitions.partition import GpuPart, GpuParts


class SharedGpu(Protocol):
    """
    Attributes:
        parts: of the GPU, where it is divided.
        steps: the part for steps of the speech LM now; None while they have the whole GPU.
        turns_at_once: turns that may be under way, the next one launched before the GPU has done the last.
    """

    turns_at_once: int

    @property
    def parts(self) -> GpuParts | None: ...

    @property
    def steps(self) -> GpuPart | None: ...

    @property
    def stands_still(self) -> bool:
        """Whether steps that nobody waits for should wait: their part is a first chunk's, or soon will be."""

    def few(self, utterances: int) -> bool:
        """Divide the GPU for so many utterances in progress; whether it is for few now."""

    def divide_for_few(self) -> None:
        """All that computes while few utterances are in progress is ready; until then they are many."""

    def puts_off(self, utterances: int, first_waits: bool) -> bool:
        """Whether turns that nobody waits for should wait, with so many utterances in progress.

        A first chunk that is there, as ``first_waits`` says, or will soon be, finds the part for turns free.
        """

    def leave(self, later: Sequence[Later]) -> bool:
        """What the speech LM would have made ready beside work, in place of what it left before; whether it
        will be: not if that has been taken already.
        """

    def take_later(self) -> Sequence[Later]:
        """What was left, once."""

    def turn(self) -> AbstractContextManager[bool]:
        """In which token2wav computes; whether it had to wait for that."""

    def first_chunk(self, utterances: int) -> AbstractContextManager[None]:
        """In which first chunks are computed on the part for steps.

        Args:
            utterances: in progress before they begin.
        """

    def hands_over(self) -> None:
        """A listener's first tokens go from the speech LM to token2wav now."""

    def step(self, hurried: bool) -> AbstractContextManager[None]:
        """In which the speech LM makes a step.

        Args:
            hurried: a listener waits for the first tokens.
        """

    def rest(self) -> None:
        """The speech LM has no step to make for now."""


Later = Callable[[Callable[[], None]], None]
"""Makes ready what is missing, and calls what it is given after each small part of that."""
SharedGpus = Mapping[int | None, SharedGpu]
"""By the GPU's number."""
NOT_SHARED: SharedGpus = MappingProxyType({})
