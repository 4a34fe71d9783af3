"""Linear layers with adapters of low rank: each sequence of a pass has its own, or none.

B: sequences of a pass, T: positions of each, N: adapters, R: their rank.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.voice_adapters import VoiceAdapters, read_voice_adapters

if TYPE_CHECKING:
    from cosyvoice_runtime.lm.torch.speech_decoder import SpeechDecoder

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class AdapterStack:
    """The matrices of one linear layer of all adapters; number 0 is none, and is zeros.

    Attributes:
        down: ``[1 + N, parts * R, inputs]``.
        up: ``[1 + N, outputs, R]``, with the adapters' scales.
        sizes: outputs of each part: parts are projections that are joined in the layer.
    """

    down: Tensor
    up: Tensor
    sizes: tuple[int, ...]

    @property
    def rank(self) -> int:
        return self.up.shape[2]

    def addend(self, x: Tensor, numbers: Tensor) -> Tensor:
        """The adapters' share of the layer's outputs, ``[B, T, outputs]`` of ``x [B, T, inputs]``.

        Args:
            numbers: ``[B]``, of each sequence's adapter.
        """
        narrow = (x @ self.down[numbers].mT).split(self.rank, dim=2)
        up = self.up[numbers].split(self.sizes, dim=1)
        return torch.cat([part @ rows.mT for part, rows in zip(narrow, up, strict=True)], dim=2)


class AdaptedLinear(nn.Linear):
    """A linear layer, with what each sequence's adapter adds.

    Args:
        sizes: outputs of the projections that are joined in it.

    Attributes:
        stack: its adapters; None if no adapter changes this layer.
    """

    def __init__(self, inputs: int, *sizes: int, bias: bool = False) -> None:
        super().__init__(inputs, sum(sizes), bias)
        self.sizes = sizes
        self.stack: AdapterStack | None = None

    def forward(self, x: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Outputs ``[B, T, outputs]`` of ``x [B, T, inputs]``; ``numbers [B]`` are of adapters."""
        return self.adapted(super().forward(x), x, numbers)

    def adapted(self, product: Tensor, x: Tensor, numbers: Tensor | None) -> Tensor:
        """The layer's product with what the adapters of its B sequences add; both may lie flat, ``[B * T,
        ...]``."""
        if self.stack is None or numbers is None:
            return product
        addend = self.stack.addend(x.reshape(len(numbers), -1, self.in_features), numbers)
        return product + addend.reshape(product.shape)


def stack_adapters(lm: SpeechDecoder, adapters: VoiceAdapters) -> int:
    """Give a network adapters, in its type; returns the bytes that they take."""
    total = 0
    for index, layer in enumerate(cast("Sequence[nn.Module]", lm.layers)):
        for module in adapters.form.modules:
            linear = cast(AdaptedLinear, layer.get_submodule(module))
            both = adapters.stacked(index, module, linear.sizes, linear.in_features)
            down, up = (torch.from_numpy(side).to(lm.device, lm.dtype) for side in both)
            linear.stack = AdapterStack(down, up, linear.sizes)
            total += down.nbytes + up.nbytes
    lm.adapters = adapters.names
    return total


def load_adapters(lm: SpeechDecoder, layout: Layout, config: SpeechLMConfig) -> None:
    """Give a network the adapters of its checkpoint's voices, if there are any.

    Raises:
        CheckpointError: one of them doesn't fit the network.
    """
    adapters = read_voice_adapters(layout, config)
    if adapters.names:
        mebibytes = stack_adapters(lm, adapters) / 2**20
        names, rank = ", ".join(adapters.names), adapters.form.rank
        logger.info("adapters by voice: %s, of rank %d, %.0f MiB", names, rank, mebibytes)
