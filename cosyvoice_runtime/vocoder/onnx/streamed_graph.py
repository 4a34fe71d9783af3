"""Layers over a signal that comes in pieces: each keeps the end of what it has read, and repeats nothing.

Inputs of the graph are the next frames, whether the utterance starts or ends with them, and what every layer
kept of the frames before. Layers write what no later frame changes; what they wait for is their signal's
delay, so that all lengths follow from the number of frames. An utterance's first piece, unless it is the last
as well, is long enough that every layer writes something.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import onnx

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.onnx.graph import FAR, FLOAT, INT64, Graph, Value

STARTS, ENDS = "starts", "ends"
"""Inputs, int64 ``[1]``: 1 for an utterance's first piece, and for its last, else 0."""
KEPT, KEEPS = "kept", "keeps"
"""Begin the names of what layers kept, inputs, and of what they keep, outputs; both in the same order."""
TIME = 3


@dataclass(frozen=True)
class Signal:
    """A piece of a signal.

    Attributes:
        value: float32 ``[1, channels, 1, steps]``.
        rate: steps for each frame.
        delay: steps that all frames so far have and that are not computed yet; negative if there are more.
    """

    value: Value
    channels: int
    rate: int
    delay: int

    def of(self, value: Value) -> Signal:
        """A signal with other values at these steps."""
        return replace(self, value=value)


@dataclass(frozen=True)
class Kernel:
    """How a convolution moves.

    Attributes:
        taps: how many steps it reads at once.
        padding: zeros before the whole signal.
        stride: from a step that is written to the next.
        dilation: from a step that is read to the next.
    """

    taps: int
    padding: int
    stride: int = 1
    dilation: int = 1

    @property
    def ahead(self) -> int:
        """Steps that a kernel that keeps the length looks ahead, and zeros after the whole signal."""
        return (self.taps - 1) * self.dilation - self.padding

    def delay(self, before: int) -> int:
        """Delay of what comes out, given that of what goes in."""
        last_tap = (self.taps - 1) * self.dilation
        return -((self.padding - before - last_tap - 1) // self.stride + 1)

    def kept(self, before: int) -> int:
        """Steps of the input that are read again."""
        return self.stride * self.delay(before) - before + self.padding


class StreamedGraph:
    """Adds layers to a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.starts = graph.input(STARTS, INT64, (1,))
        self.ends = graph.input(ENDS, INT64, (1,))
        self._keeps: list[tuple[Value, tuple[int, ...]]] = []
        self._places: dict[tuple[str, int, int], Value] = {}
        self._zeros: dict[tuple[int, int], Value] = {}

    def model(self) -> onnx.ModelProto:
        """The finished model."""
        for number, (value, shape) in enumerate(self._keeps):
            self.graph.output(
                f"{KEEPS}.{number}", value, (*shape[:TIME], f"kept_{number}")
            )  # fewer at the end
        return self.graph.model()

    def read(self, signal: Signal, kernel: Kernel) -> Value:
        """The steps that a convolution reads: those that it kept, the signal's, and padding.

        A signal of which one takes strides has a step more than whole strides; it needs no zeros of its own.
        """
        after = kernel.ahead if kernel.stride == 1 else kernel.ahead - kernel.stride
        return self.continued(signal, kernel.kept(signal.delay), kernel.padding, after)

    def convolved(
        self, name: str, weight: Array, bias: Array | None, signal: Signal, kernel: Kernel, read: Value
    ) -> Signal:
        """A convolution by ``[outputs, inputs, taps]`` of what :meth:`read` gives for it, or of values made
        of that."""
        flat = self.graph.node(
            "Conv", read, *self._weights(name, weight, bias),
            strides=[1, kernel.stride], dilations=[1, kernel.dilation],
        )  # fmt: skip
        return Signal(flat, len(weight), signal.rate // kernel.stride, kernel.delay(signal.delay))

    def repeated(self, signal: Signal, rate: int) -> Signal:
        """Each step so many times."""
        graph = self.graph
        copies = graph.concat([graph.unsqueeze(signal.value, TIME + 1)] * rate, TIME + 1)
        flat = graph.reshape(copies, (0, 0, 1, -1))
        return Signal(flat, signal.channels, signal.rate * rate, signal.delay * rate)

    def spread(
        self, name: str, weight: Array, bias: Array | None, signal: Signal, rate: int, padding: int,
        before: Value | None = None,
    ) -> Signal:  # fmt: skip
        """A transposed convolution that writes ``rate`` steps for each, less ``padding`` at both ends.

        Args:
            weight: ``[inputs, outputs, taps]``.
            before: what was kept, if it is not to be asked for.
        """
        graph, taps = self.graph, weight.shape[2]
        kept = spread_reach(taps, rate)
        if before is None:
            read = self.continued(signal, kept, kept)
        else:
            read = graph.concat([before, signal.value], TIME)
        flat = graph.node(
            "ConvTranspose", read, *self._weights(name, weight, bias),
            strides=[1, rate], pads=[0, rate * kept, 0, padding],
        )  # fmt: skip
        whole = self._cut(flat, self.place(self.starts, 0, padding), taps - rate - padding)
        return Signal(whole, weight.shape[1], signal.rate * rate, rate * signal.delay + padding)

    def delayed(self, signal: Signal, delay: int) -> Signal:
        """The signal some steps later, for one that comes later."""
        more = delay - signal.delay
        if not more:
            return signal
        waiting = self.continued(signal, more, 0)
        return replace(signal, value=self._cut(waiting, self.graph.integers(0), more), delay=delay)

    def residual(self, read: Value, first: Kernel, second: Kernel) -> Value:
        """Of what the first of two convolutions reads, the steps that the second one writes."""
        start = self.place(self.starts, first.padding - second.ahead, second.ahead)
        waiting = first.ahead + second.ahead
        end = self.place(self.ends, -waiting, second.ahead) if waiting else FAR
        return self.graph.slice(read, TIME, start, end)

    def place(self, flag: Value, number: int, more: int) -> Value:
        """``number``, and ``more`` if the flag is 1: int64 ``[1]``."""
        key = flag.name, number, more
        if key not in self._places:
            graph = self.graph
            self._places[key] = flag * graph.integers(more) + graph.integers(number)
        return self._places[key]

    def continued(self, signal: Signal, kept: int, at_start: int, at_end: int = 0) -> Value:
        """Steps kept of the pieces before, the signal's, and zeros where the utterance ends.

        Args:
            kept: how many steps are kept for the next piece.
            at_start: how many of the first piece's, which are zeros.
            at_end: zeros after the last one.
        """
        graph, shape = self.graph, (1, signal.channels, 1, kept)
        if not kept:
            return signal.value
        before = graph.input(f"{KEPT}.{len(self._keeps)}", FLOAT, shape)
        if at_start < kept:
            before = graph.slice(before, TIME, self.place(self.starts, 0, kept - at_start), FAR)
        padding = [self._padding(signal.channels, at_end)] if at_end else []
        joined = graph.concat([before, signal.value, *padding], TIME)
        self._keeps.append((graph.slice(joined, TIME, -kept, FAR), shape))
        return joined

    def _padding(self, channels: int, steps: int) -> Value:
        """Zeros where the utterance ends, else nothing."""
        key = channels, steps
        if key not in self._zeros:
            graph = self.graph
            sizes = [graph.integers(1), graph.integers(channels), graph.integers(1)]
            shape = graph.concat([*sizes, self.place(self.ends, 0, steps)], 0)
            self._zeros[key] = graph.node("ConstantOfShape", shape, onnx_type=FLOAT)
        return self._zeros[key]

    def _cut(self, value: Value, start: Value, waiting: int) -> Value:
        """The steps from ``start`` on, without those that wait for the next piece."""
        end = self.place(self.ends, -waiting, FAR) if waiting else FAR
        return self.graph.slice(value, TIME, start, end)

    def _weights(self, name: str, weight: Array, bias: Array | None) -> list[Value]:
        graph = self.graph
        found = [graph.weight(f"{name}.weight", weight[:, :, None])]
        return found if bias is None else [*found, graph.weight(f"{name}.bias", bias)]


def spread_reach(taps: int, rate: int) -> int:
    """Steps before its own that a step of a transposed convolution adds to."""
    return -(-(taps - rate) // rate)
