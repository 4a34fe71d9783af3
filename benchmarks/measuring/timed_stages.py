"""Stages of a real server that answer after the time that a measured curve says, and compute nothing.

The engine's driver, its event loop, tritonserver, the gateways and admission are the product's own. The
speech LM draws all tokens of an utterance at once. Chunks of token2wav come when a GPU that all utterances
share would have made them, and a first one when first audio was measured with as many in progress.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cosyvoice_runtime.engine.batches.chunk import WaveChunk, WaveOutcome
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm.generation import FinishReason
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.scheduler.job import Reader
from measuring.fleet_simulation import MEAN_S, SHAPE, first_ms
from measuring.speed_curve import Curve

BENCHMARKS = Path(__file__).resolve().parents[1]
TOKENS_S, SAMPLES_OF_TOKEN = 25, 960
MOST = 4096
"""Utterances for which speeds are known."""
TIMED = "timed.json"
"""File beside the model with its curve, the factor by which everything is slower, and a seed."""


def with_timed_stages(repository: Path, curve: Curve, slower: float = 1.0, seed: int = 0) -> None:
    """Have the engine of a rendered repository answer after the times of a curve, so many times as slow."""
    model = repository / "token2wav"
    importing = f"import sys\n\nsys.path.append({str(BENCHMARKS)!r})\n"
    timed = (BENCHMARKS / "timed_models" / "token2wav.py").read_text("utf-8")
    (model / "1" / "model.py").write_text(importing + timed, "utf-8")
    told = {"curve": asdict(curve), "slower": slower, "seed": seed}
    (model / TIMED).write_text(json.dumps(told), "utf-8")


@dataclass(eq=False)
class Timed:
    """
    An utterance in progress.

    Attributes:
        begun: what each utterance in progress had been given, in seconds of speech, when it began.
        length_s: its own speech.
        first_at: when its first chunk is there.
    """

    begun: float
    length_s: float
    first_at: float


@dataclass(frozen=True, eq=False)
class Due:
    """A chunk that is waited for, up to ``end_s`` of the speech of its utterance."""

    timed: Timed
    end_s: float
    first: bool
    deliver: Callable[[], None]


class TimedGpu:
    """
    A GPU of the curve, so many times as slow; the caller tells the time and locks.

    Attributes:
        now: seconds, of the last call of :meth:`advance`.
    """

    def __init__(self, curve: Curve, slower: float, seed: int) -> None:
        counts = np.arange(1.0, MOST + 1)
        self._speeds = [float(speed) / slower for speed in curve.speeds(counts)]
        self._first_audio, self._slower = curve.first_audio(counts), slower
        self._chance = random.Random(seed)
        self._given, self.now = 0.0, 0.0
        self._speaking: dict[str, Timed] = {}
        self._due: list[Due] = []

    def __len__(self) -> int:
        return len(self._speaking)

    def draw(self) -> float:
        """Seconds of speech of an utterance."""
        return self._chance.gammavariate(SHAPE, MEAN_S / SHAPE)

    def begin(self, name: str, length_s: float) -> None:
        """Admit an utterance."""
        row = self._first_audio[min(len(self), MOST - 1)]
        first_s = first_ms(row, self._chance) / 1e3 * self._slower
        self._speaking[name] = Timed(self._given, length_s, self.now + first_s)

    def want(self, chunk: WaveChunk, deliver: Callable[[], None]) -> None:
        """Have a chunk delivered when it is there: at once, if its utterance has been spoken."""
        end_s = (chunk.position + len(chunk.tokens)) / TOKENS_S
        spoken = Timed(self._given - end_s, end_s, self.now)
        timed = self._speaking.get(chunk.utterance_id, spoken)
        self._due.append(Due(timed, min(end_s, timed.length_s), chunk.position == 0, deliver))

    def end(self, name: str) -> None:
        """Forget an utterance."""
        if (timed := self._speaking.pop(name, None)) is not None:
            self._due = [due for due in self._due if due.timed is not timed]

    def advance(self, now: float) -> list[Callable[[], None]]:
        """Let time pass; returns the deliveries that are due."""
        while self._speaking and (spoken_at := self._next_spoken()) <= now:
            self._give(spoken_at)
            self._speaking = {
                name: timed
                for name, timed in self._speaking.items()
                if self._left(timed, timed.length_s) > 1e-9
            }
        self._give(now)
        there = [due for due in self._due if self._at(due) <= now + 1e-9]
        self._due = [due for due in self._due if due not in there]
        return [due.deliver for due in there]

    def next_at(self) -> float | None:
        """When something is due if nobody comes or goes before; None if nothing is."""
        moments = [self._at(due) for due in self._due]
        moments += [self._next_spoken()] if self._speaking else []
        return min(moments, default=None)

    def _give(self, now: float) -> None:
        if self._speaking:
            self._given += (now - self.now) * self._speeds[len(self) - 1] / len(self)
        self.now = now

    def _left(self, timed: Timed, end_s: float) -> float:
        return timed.begun + end_s - self._given

    def _next_spoken(self) -> float:
        left = min(self._left(timed, timed.length_s) for timed in self._speaking.values())
        return self.now + max(left, 0.0) * len(self) / self._speeds[len(self) - 1]

    def _at(self, due: Due) -> float:
        if due.first and due.end_s < due.timed.length_s:
            return due.timed.first_at
        left = max(self._left(due.timed, due.end_s), 0.0)
        made_at = self.now + (left * len(self) / self._speeds[len(self) - 1] if left and len(self) else 0.0)
        return max(made_at, due.timed.first_at) if due.first else made_at


class TimedStages:
    """The speech LM and token2wav of an engine, on a :class:`TimedGpu` with the clock of this machine.

    Args:
        lm: the real one, whose silent tokens are none of those that are sent.

    Attributes:
        takes_spoken: no request goes on from tokens of another.
    """

    takes_spoken = False

    def __init__(self, lm: Any, gpu: TimedGpu) -> None:
        self.silent_tokens: frozenset[int] = lm.silent_tokens
        self._token = next(token for token in itertools.count() if token not in self.silent_tokens)
        self._gpu, self._changed = gpu, threading.Condition()
        gpu.advance(time.monotonic())
        threading.Thread(target=self._run, name="timed", daemon=True).start()

    def speak(
        self,
        prompt: Prompt,  # noqa: ARG002
        sampling: SamplingOptions,  # noqa: ARG002
        request_id: str,
        groups: tuple[int, int],  # noqa: ARG002
        reader: Reader,
        in_pieces: bool,
        is_awaited: bool,  # noqa: ARG002
        with_rows: bool,  # noqa: ARG002
    ) -> None:
        """Draw all speech tokens at once."""
        if in_pieces:
            raise InvalidInput("text_event", "open", "timed stages take whole texts")
        with self._changed:
            length_s = self._gpu.draw()
            self._pass()
            self._gpu.begin(request_id, length_s)
            self._changed.notify()
        reader.send([self._token] * max(round(length_s * TOKENS_S), 1), FinishReason.STOP)

    def push_text(self, request_id: str, ids: Sequence[int], ended: bool) -> None:
        """No request takes text in pieces, so none comes here."""

    def stop(self, request_id: str) -> None:
        """The tokens have all been sent."""

    def submit(self, chunk: WaveChunk, deliver: Callable[[WaveOutcome], None]) -> None:
        """Deliver a tone when the chunk's time has come; silence would be taken for a fault."""
        samples = np.resize(np.array([0.1, -0.1], np.float32), len(chunk.tokens) * SAMPLES_OF_TOKEN)
        with self._changed:
            self._pass()
            if chunk.cancel:
                self._gpu.end(chunk.utterance_id)
            else:
                self._gpu.want(chunk, lambda: deliver(samples))
            self._changed.notify()

    def with_remedy(self, error: Exception) -> Exception:
        return error

    def _pass(self) -> None:
        for deliver in self._gpu.advance(time.monotonic()):
            deliver()

    def _run(self) -> None:
        with self._changed:
            while True:
                self._pass()
                next_at = self._gpu.next_at()
                self._changed.wait(None if next_at is None else max(next_at - time.monotonic(), 1e-4))
