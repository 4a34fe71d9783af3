"""What the parts of token2wav ask of a compiled network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from torch import Tensor

Tensors = Mapping[str, Tensor]


class CompiledNetwork(Protocol):
    """A graph from :mod:`cosyvoice_runtime.compiled.export`, ready to run; safe for several threads."""

    def run(self, inputs: Tensors) -> dict[str, Tensor]:
        """All outputs by name, on the inputs' device; nothing of the inputs is kept or changed."""

    def run_all(self, calls: Iterable[Tensors]) -> list[dict[str, Tensor]]:
        """The outputs of each call, as :meth:`run` gives them; some of the calls may run at once.

        Inputs are asked for when there is room for their call, and not before.
        """
