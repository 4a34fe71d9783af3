"""Chunks of mel to chunks of waveform, for several utterances at once, without seams.

Each chunk is vocoded together with enough frames around it that the result is that of the whole utterance.
With a smaller lookahead the missing frames are guessed by repeating the newest one. F0, phase and source of
what was emitted stay as they were used, so that the sines go on without a jump; what remains of the guess's
error at the join is faded out over a few milliseconds. The runtimes compute the windows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.vocoder.state import Carry, UtteranceNoise, VocoderState, Window

Waveforms = Callable[[], list[Floats]]
"""Waits for waveforms ``[n]`` that are on their way to the host."""


def keeping(waveforms: Waveforms, memory: object) -> Waveforms:
    """Keep the memory that waveforms are made of until they are there."""
    return partial(_waited_for, waveforms, memory)


def _waited_for(waveforms: Waveforms, memory: object) -> list[Floats]:  # noqa: ARG001
    return waveforms()


class Wave:
    """Samples of one utterance, which may still be on their way to the host.

    Args:
        length: number of samples.
        array: waits for the samples, float32 ``[length]``.
    """

    def __init__(self, length: int, array: Callable[[], Floats]) -> None:
        self._length, self.array = length, array

    def __len__(self) -> int:
        return self._length

    @property
    def nbytes(self) -> int:
        return np.dtype(np.float32).itemsize * self._length

    def cut(self, start: int, stop: int) -> Wave:
        """The samples ``start:stop``, as far as there are some."""
        start, stop = min(start, self._length), min(stop, self._length)
        return Wave(stop - start, lambda: self.array()[start:stop])


def joined(waves: Sequence[Wave]) -> Wave:
    """Waves one after the other; of none, a wave without samples."""
    if len(waves) == 1:
        return waves[0]
    nothing = np.zeros(0, np.float32)
    return Wave(sum(map(len, waves)), lambda: np.concatenate([nothing, *(wave.array() for wave in waves)]))


class WindowWave(NamedTuple):
    """Result of a window.

    Attributes:
        wave: the samples from the first frame to emit on, to the window's end or further.
        carried: state for the next window.
    """

    wave: Wave
    carried: Carry


class WindowedVocoder(ABC):
    """Vocodes utterances in one batch.

    Attributes:
        config: sizes of the network.
        fused: whether fused kernels have taken the decoder's place.
    """

    def __init__(self, config: VocoderConfig) -> None:
        self.config = config

    @property
    def fused(self) -> bool:
        return False

    @abstractmethod
    def start(self) -> Carry:
        """State before the first window."""

    @abstractmethod
    def utterance_noise(self, seed: int) -> UtteranceNoise:
        """Noise of an utterance that begins now."""

    @abstractmethod
    def computed(self, states: Sequence[VocoderState], windows: Sequence[Window]) -> Iterable[WindowWave]:
        """Compute windows, one of each state."""

    @abstractmethod
    def joined_mel(self, mels: Sequence[Any]) -> Any:
        """Mels ``[bins, n]``, at least one, one after the other."""

    @abstractmethod
    def between(
        self, mel: Any, left: npt.NDArray[np.int64], right: npt.NDArray[np.int64], weight: Floats
    ) -> Any:
        """Interpolate from a mel's frames ``left`` to its frames ``right`` by ``weight``."""

    def here(self, mel: Any) -> Any:
        """A mel of the flow's, where the vocoder works."""
        return mel

    def blended(self, first: Floats, second: Floats, weight: Floats) -> Floats:
        """Interpolate from the first array to the second by ``weight``."""
        return first + weight * (second - first)

    def concurrent(self) -> AbstractContextManager[object]:
        """Context in which it computes what the flow has given, while the flow computes what comes next."""
        return nullcontext()

    def sent(self, waves: Sequence[Wave]) -> Waveforms:
        """A function that waits for waves."""
        return lambda: [wave.array() for wave in waves]

    def pieces(self, mel: Any) -> Sequence[Any]:
        """A mel in pieces that a call can take."""
        return (mel,)

    def calls(self, rows: Sequence[int], windows: Mapping[int, Window]) -> Iterator[Sequence[int]]:  # noqa: ARG002
        """Rows of each call."""
        yield from [rows] if rows else []

    def open(self, noise_seed: int | None, lookahead: int | None = None) -> VocoderState:
        """Start an utterance.

        Args:
            noise_seed: None for a source without noise.
            lookahead: as :class:`VocoderState` has it.
        """
        noise = None if noise_seed is None else self.utterance_noise(noise_seed)
        return VocoderState(self.config, self.start(), noise, lookahead)

    def advance(
        self, states: Sequence[VocoderState], mels: Sequence[Any], last: Sequence[bool]
    ) -> list[Wave]:
        """Take the next mel of each utterance and return its next samples.

        Args:
            states: one per utterance; advanced in place.
            mels: [bins, n] each, n >= 0, float32, as :meth:`here` gives it.
            last: the utterance ends with this chunk.

        Returns:
            One [hop * m] float32 waveform per utterance: all frames received less its lookahead, less what
            was returned before; on the last chunk all that is left.

        Raises:
            ValueError: an utterance goes on after its last chunk, or mel has another shape; no state has
                changed.
        """
        for state, mel in zip(states, mels, strict=True):
            state.check(mel)
        waves: list[list[Wave]] = [[] for _ in states]
        pieces = [self.pieces(mel) for mel in mels]
        for index in range(max(map(len, pieces), default=0)):
            windows: dict[int, Window] = {}
            for row, state in enumerate(states):
                if index < len(pieces[row]):
                    more = index + 1 < len(pieces[row])
                    state.take(pieces[row][index], last[row] and not more, self.joined_mel)
                    windows[row] = state.window(more)
            for row, wave in self._vocode(states, windows):
                waves[row].append(wave)
        return [joined(each) for each in waves]

    def _vocode(
        self, states: Sequence[VocoderState], windows: Mapping[int, Window]
    ) -> Iterator[tuple[int, Wave]]:
        """Rows that emit something, and their new samples."""
        emitting = [row for row, window in windows.items() if window.emit]
        for rows in self.calls(emitting, windows):
            outputs = self.computed([states[row] for row in rows], [windows[row] for row in rows])
            for row, output in zip(rows, outputs, strict=True):
                yield row, self._advance(states[row], windows[row], output)

    def _advance(self, state: VocoderState, window: Window, output: WindowWave) -> Wave:
        """Move past what is emitted; the emitted samples."""
        hop, wave = self.config.hop, output.wave
        end = hop * window.emit
        samples = self._faded(state.continuation, wave.cut(0, end))
        state.move(window.emit, output.carried)
        guessed = window.guessed and not state.is_last
        state.continuation = wave.cut(end, end + fade_length(hop)) if guessed else None
        return samples

    def _faded(self, continuation: Wave | None, samples: Wave) -> Wave:
        """Fade from how the previous chunk would have gone on to what is now known to be right."""
        if continuation is None:
            return samples
        length = len(continuation)
        weight = np.arange(length, dtype=np.float32) / np.float32(length)
        start = samples.cut(0, length)
        faded = Wave(length, lambda: self.blended(continuation.array(), start.array(), weight))
        return joined([faded, samples.cut(length, len(samples))])


def fade_length(hop: int) -> int:
    """Samples over which a guess gives way to what is right: 5 ms of a 20 ms frame."""
    return max(1, hop // 4)
