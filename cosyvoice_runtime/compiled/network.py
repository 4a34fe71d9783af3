"""What the parts of token2wav ask of a compiled network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from torch import Tensor

from cosyvoice_runtime.flow.layers import Gathered

Tensors = Mapping[str, Tensor]
Inputs = Mapping[str, Tensor | Gathered]


class CompiledNetwork(Protocol):
    """A graph from :mod:`cosyvoice_runtime.compiled.export`, ready to run; safe for several threads."""

    def run(self, inputs: Inputs) -> dict[str, Tensor]:
        """All outputs by name, on the inputs' device; nothing of the inputs is kept or changed."""

    def run_all(self, calls: Iterable[Inputs]) -> list[dict[str, Tensor]]:
        """The outputs of each call, as :meth:`run` gives them; some of the calls may run at once.

        Inputs are asked for when there is room for their call, and not before.
        """


def whole(value: Tensor | Gathered) -> Tensor:
    """The tensor itself, or what it is gathered to."""
    return value if isinstance(value, Tensor) else value.whole()
