"""How many operations of torch the host does for a turn of token2wav: no GPU is needed.

    python benchmarks/turn_operations.py
    python benchmarks/turn_operations.py --places

Between the operations of torch, and in each of them, other threads of the process may take Python's lock, and
a turn waits until it has it back. Counted are functions and methods of torch, indexing included, and calls of
streams and events, from the arrival of a turn's chunks until its samples are arrays of the host, the two
halves apart. A replay counts as one: what is captured runs, but counts for nothing. Reading a tensor's shape,
type or device does not count. A small checkpoint with random weights stands in for the published one, and
stand-ins for the captures and for what moves values to a GPU and back.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import numpy as np
import torch
from torch.overrides import TorchFunctionMode, resolve_name

from cosyvoice_runtime.engine.batches import PromptTensors, WaveChunk, WaveService
from cosyvoice_runtime.engine.batches.voices import VoiceCache
from cosyvoice_runtime.engine.runtimes.torch_graphs import TorchToken2Wav
from cosyvoice_runtime.engine.runtimes.torch_runtime import load_token2wav
from cosyvoice_runtime.flow.torch import stream
from cosyvoice_runtime.flow.torch.call_pages import Places
from cosyvoice_runtime.flow.torch.graphed_calls import FEW_PASTS, CallBuckets
from cosyvoice_runtime.flow.torch.solver import Conditions
from cosyvoice_runtime.gpu import transfer
from cosyvoice_runtime.gpu.buckets import batch_buckets
from cosyvoice_runtime.gpu.cuda_graphs import CapturedGraph
from cosyvoice_runtime.settings import Machine, Token2WavSettings
from making import make_checkpoint
from measuring.machine import ROOT
from measuring.report import table

T = TypeVar("T")
PACKAGE = str(ROOT / "cosyvoice_runtime") + "/"
ROWS = 16
WARM = 5
"""Turns of a kind, of which the last counts: memory of transfers is there then, also where two take turns and
the first turn clears away what others left."""
FREE = {"__len__", "dim", "size", "stride", "numel", "element_size", "is_contiguous", "data_ptr"}
"""Read from a tensor's header."""


class Counted(TorchFunctionMode):
    """Counts what Python calls of torch, by the line of the library that does.

    Attributes:
        places: count of each (place, function).
    """

    def __init__(self) -> None:
        super().__init__()
        self.places: Counter[tuple[str, str]] = Counter()

    def note(self, name: str) -> None:
        frame = sys._getframe(1)
        while frame.f_back is not None and not frame.f_code.co_filename.startswith(PACKAGE):
            frame = frame.f_back
        self.places[f"{frame.f_code.co_filename.removeprefix(PACKAGE)}:{frame.f_lineno}", name] += 1

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = resolve_name(func) or str(func)
        last = name.rsplit(".", 1)[-1]
        if last == "__get__":
            last = name.split(".")[-2]
        if last not in FREE and not (name.endswith("__get__") and last not in ("T", "mT")):
            self.note(last)
        return func(*args, **(kwargs or {}))


class ReplayedAnew:
    """A stand-in for captures: a replay computes on the same memory and leaves the result where it was."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def __call__(
        self,
        compute: Callable[[], T],
        warm_up: Callable[[], object] | None = None,  # noqa: ARG002
    ) -> CapturedGraph[T]:
        result = compute()

        def replay() -> None:
            self._note("replay")
            with torch._C.DisableTorchFunction():
                for kept, new in zip(_tensors(result), _tensors(compute()), strict=True):
                    if kept is not new:
                        kept.copy_(new)

        return CapturedGraph(replay, result, compute)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from _tensors(getattr(value, name))


class OneStep:
    """In the place of the flow's fused steps."""

    def solve(
        self,
        mel: torch.Tensor,
        guided: Conditions,  # noqa: ARG002
        places: Places,
        steps: int | None = None,  # noqa: ARG002
    ) -> None:
        mel.mul_(1)
        places.new_tails.copy_(places.tails)

    def on(self, multiprocessors: int) -> OneStep:  # noqa: ARG002
        return self


class Event:
    """In the place of a GPU's, all of whose work is done."""

    note: Callable[[str], None]

    def record(self, stream: object = None) -> None:  # noqa: ARG002
        self.note("event.record")

    def query(self) -> bool:
        self.note("event.query")
        return True


@contextmanager
def stood_in(note: Callable[[str], None]) -> Iterator[None]:
    """Transfers are a GPU's, to memory of the host."""
    empty, zeros, from_numpy = torch.empty, torch.zeros, torch.from_numpy

    def unpinned(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return lambda *size, pin_memory=False, **options: make(*size, **options)  # noqa: ARG005

    def noted(name: str, does: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **options: Any) -> Any:
            note(name)
            return does(*given, **options)

        return call

    event = type("NotedEvent", (Event,), {"note": staticmethod(note)})
    queue = mock.Mock(record_event=noted("record_event", event), wait_event=noted("wait_event", id))
    with (
        mock.patch.object(transfer, "on_gpu", return_value=True),
        mock.patch.object(stream, "on_gpu", return_value=True),
        mock.patch.object(torch, "empty", unpinned(empty)),
        mock.patch.object(torch, "zeros", unpinned(zeros)),
        mock.patch.object(torch, "from_numpy", noted("from_numpy", from_numpy)),
        mock.patch.object(torch.Tensor, "pin_memory", noted("pin_memory", torch.Tensor.clone)),
        mock.patch.object(torch.cuda, "Event", event),
        mock.patch.object(torch.cuda, "current_stream", noted("current_stream", lambda _=None: queue)),
    ):
        yield


class Turns:
    """A service whose turns are counted."""

    def __init__(self, checkpoint: Path) -> None:
        self.counting: Counted | None = None
        settings = Token2WavSettings(
            checkpoint_dir=checkpoint, backend="torch", max_flow_pages=8 * ROWS, ode_steps=1, threads=1
        )
        self.token2wav = load_token2wav(settings.resolved(Machine(cores=1, gpu=False)))
        buckets = CallBuckets(batch_buckets(ROWS), blocks=(1, 2), before=FEW_PASTS[:1])
        self.token2wav.capture(buckets, ReplayedAnew(self.note), OneStep())
        self.service = WaveService(self.token2wav, VoiceCache(self.token2wav.flow, 4), 3600.0)
        self.prompt = prompt(self.token2wav)
        self.opened = 0
        self.service.run([self.chunk("voice", 0)])
        self.service.run([WaveChunk.forgetting("voice")])

    def note(self, name: str) -> None:
        if self.counting is not None:
            self.counting.note(name)

    def chunk(self, name: str, position: int, tokens: int = 28, speed: float = 1.0) -> WaveChunk:
        given = [7] * tokens
        return WaveChunk(name, given, position, False, self.prompt.key, 1, speed, self.prompt)

    def counted(self, chunks: list[WaveChunk]) -> tuple[Counted, Counted]:
        """Operations of the launch, and of what follows."""
        launching, ending = Counted(), Counted()
        self.counting = launching
        with launching:
            outcomes = self.service.launch(chunks)
        self.counting = None
        self.counting = ending
        with ending:
            waves = outcomes()
        self.counting = None
        for wave in waves:
            if isinstance(wave, Exception):
                raise wave
        return launching, ending

    def first(self, rows: int, speed: float = 1.0) -> tuple[Counted, Counted]:
        names = self.names(rows)
        counts = self.counted([self.chunk(name, 0, speed=speed) for name in names])
        self.forget(names)
        return counts

    def next(self, rows: int, speed: float = 1.0) -> tuple[Counted, Counted]:
        """Utterances whose first chunks were in two turns."""
        names = self.names(rows)
        for part in (names[::2], names[1::2]):
            self.service.run([self.chunk(name, 0, speed=speed) for name in part])
        counts = self.counted([self.chunk(name, 28, 25, speed) for name in names])
        self.forget(names)
        return counts

    @staticmethod
    def warm(count: Callable[[], tuple[Counted, Counted]]) -> tuple[Counted, Counted]:
        """The last of several."""
        for _ in range(WARM - 1):
            count()
        return count()

    def names(self, rows: int) -> list[str]:
        self.opened += 1
        return [f"{self.opened}.{row}" for row in range(rows)]

    def forget(self, names: list[str]) -> None:
        self.service.run([WaveChunk.forgetting(name) for name in names])


def prompt(token2wav: TorchToken2Wav, tokens: int = 28) -> PromptTensors:
    config = token2wav.flow.flow.config
    return PromptTensors(
        np.ones(tokens, np.int32),
        np.full((config.frames_per_token * tokens, config.mel_bins), -6, np.float32),
        np.ones(config.speaker_dim, np.float32),
    )


@contextmanager
def on_a_stand_in(checkpoint: Path) -> Iterator[Turns]:
    """A service as on a GPU."""
    turns: list[Turns] = []

    def note(name: str) -> None:
        for each in turns:
            each.note(name)

    with stood_in(note):
        turns.append(Turns(checkpoint))
        yield turns[0]


def main(given: list[str] | None = None) -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--places", action="store_true", help="print the lines that they come from")
    options = arguments.parse_args(given)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = make_checkpoint(Path(folder, "tiny"), "tiny", seed=0)
        with on_a_stand_in(checkpoint) as turns:
            for title, count in (
                ("1 first chunk", lambda: turns.first(1)),
                ("4 first chunks", lambda: turns.first(4)),
                ("16 chunks that go on", lambda: turns.next(16)),
                ("4 first chunks, speed 1.2", lambda: turns.first(4, 1.2)),
                ("16 chunks that go on, speed 1.2", lambda: turns.next(16, 1.2)),
            ):
                counts = turns.warm(count)
                rows.append([title, *(str(each.places.total()) for each in counts)])
                if options.places:
                    show(title, *counts)
    print(table(("turn", "its launch", "its end"), rows))


def show(title: str, launching: Counted, ending: Counted) -> None:
    for half, counted in (("launch", launching), ("end", ending)):
        lines = [(place, name, str(count)) for (place, name), count in sorted(counted.places.items())]
        print(table((f"{title}: {half}", "function", "count"), lines), end="\n\n")


if __name__ == "__main__":
    main()
