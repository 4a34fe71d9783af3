"""A flow as whoever keeps voices and counts memory sees it, whatever computes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cosyvoice_runtime.flow.page_store import Tails
from cosyvoice_runtime.flow.prompt import FlowInputs, FlowPrompt


@dataclass(frozen=True, eq=False)
class FlowPrefix:
    """The flow's state of a voice alone, held for every utterance that uses it.

    Attributes:
        ready: where it is computed by a GPU: tells when that has been done.
    """

    prompt: FlowPrompt
    pages: list[int]
    tails: Tails
    tokens_done: int
    ready: Any = None


class VoiceFlow(ABC):
    """
    Attributes:
        recomputing: utterances so far that ran out of pages.
        calls: of the network so far.
        fused: whether captured calls take the solver's steps in fused kernels.
    """

    fused = False

    def __init__(self, flow: FlowInputs) -> None:
        self._given = flow
        self.recomputing = self.calls = 0

    @property
    def flow(self) -> FlowInputs:
        """Inputs of the networks."""
        return self._given

    @property
    def num_pages(self) -> int:
        """Blocks of finished work that may be kept; 0 for a flow that keeps none."""
        return 0

    @property
    def free_pages(self) -> int:
        return 0

    def when_short(self, makes_room: Callable[[int], bool]) -> None:  # noqa: B027 - a flow may have no pages
        """Whom to ask when there are fewer free pages than somebody needs.

        Args:
            makes_room: called from any thread with the number of pages; whether it is worth while to look
                again.
        """

    @property
    def eager_calls(self) -> int:
        """Calls so far that no captured graph held, where there are graphs."""
        return 0

    def forget_counts(self) -> None:
        """Count from zero again."""
        self.recomputing = self.calls = 0

    @abstractmethod
    def prefix(self, prompt: FlowPrompt) -> FlowPrefix:
        """State that can be computed from a voice alone. Pair with :meth:`close`."""

    @abstractmethod
    def close(self, held: Any) -> None:
        """Give back the pages of an utterance or of a voice; harmless when repeated."""

    def prefix_pages(self, prompt_tokens: int) -> int:  # noqa: ARG002
        """Pages that :meth:`prefix` takes of a prompt of so many tokens."""
        return 0
