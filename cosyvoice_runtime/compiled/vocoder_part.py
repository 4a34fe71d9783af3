"""The vocoder's decoder as a compiled network, called as the torch module is."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from cosyvoice_runtime.compiled.ports import FittedNetwork
from cosyvoice_runtime.compiled.shapes import Shapes, VocoderShape
from cosyvoice_runtime.vocoder.rows import Rows

Fit = Callable[[VocoderShape], VocoderShape]


class EngineDecoder(nn.Module):
    """In place of :class:`~cosyvoice_runtime.vocoder.hift.Decoder`."""

    def __init__(self, network: FittedNetwork, shapes: Shapes, fit: Fit) -> None:
        super().__init__()
        self._network, self._shapes, self._fit = network, shapes, fit

    def forward(self, mel: Tensor, source: Tensor, rows: Rows) -> Tensor:
        target = self._fit(VocoderShape(len(rows), rows.width))
        inputs = {"mel": mel.float(), "source": source, "frames": rows.lengths()}
        return self._network.run(inputs, self._shapes.decoder(target))["wave"]
