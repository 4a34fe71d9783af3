"""The vocoder on ONNX Runtime and numpy: mel to waveform; the decoder computes nothing twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.onnx.memory import give_back_heap, giving_back_arena
from cosyvoice_runtime.onnx.session import HIFT_DECODER, HIFT_F0, graph_path, open_session
from cosyvoice_runtime.vocoder.geometry import context
from cosyvoice_runtime.vocoder.onnx.source import Doubles, Phase, source_of
from cosyvoice_runtime.vocoder.state import UtteranceNoise, VocoderState, Window
from cosyvoice_runtime.vocoder.windowed_vocoder import Wave, WindowedVocoder, WindowWave


class Taken(NamedTuple):
    """Result of a piece.

    Attributes:
        wave: ``[n]``, after the samples of the pieces before.
        kept: state of the layers for the next piece.
    """

    wave: Floats
    kept: Sequence[Floats]


class CpuDecoder:
    """A session of the decoder's graph (:mod:`~cosyvoice_runtime.vocoder.onnx.decoder_graph`).

    Args:
        threads: number of threads of one operation.

    Attributes:
        start: state of the layers before an utterance's first piece.

    Raises:
        EngineFileError: the graph is missing or no readable model.
    """

    def __init__(self, path: Path, threads: int) -> None:
        self._session = open_session(path, threads, own_layouts=True)
        ports = [port for port in self._session.get_inputs() if port.name.startswith("kept.")]
        self._names = [port.name for port in ports]
        self._outputs = ["wave", *(f"keeps.{number}" for number in range(len(ports)))]
        self.start: Sequence[Floats] = tuple(np.zeros(port.shape, np.float32) for port in ports)

    def take(
        self, mel: Floats, source: Floats, kept: Sequence[Floats], starts: bool, ends: bool = False
    ) -> Taken:
        """The samples that the next frames make certain.

        Args:
            mel: ``[bins, T]``; ``source``: ``[hop * T]``.
            starts: they are the utterance's first; ``ends``: its last.
        """
        inputs = {
            "mel": np.ascontiguousarray(mel[None]),
            "source": source[None],
            "starts": np.array([starts], np.int64),
            "ends": np.array([ends], np.int64),
        }
        wave, *keeps = self._session.run(self._outputs, inputs | dict(zip(self._names, kept, strict=True)))
        return Taken(wave[0], keeps)


@dataclass(frozen=True)
class CpuCarry:
    """State of an utterance between windows. Frames and samples are counted from its start.

    Attributes:
        first: frame that ``mel`` begins with.
        mel: ``[bins, n]``, as far back as it is read again.
        fed: frames that the decoder has taken in for good.
        source: of those after them whose source stays as it was used.
        phase: at the first frame after these; None at the start.
        written: samples that the decoder has made certain.
        ahead: the last of them, not emitted yet.
        kept: what the decoder's layers kept.
    """

    first: int
    mel: Floats
    fed: int
    source: Floats
    phase: Phase | None
    written: int
    ahead: Floats
    kept: Sequence[Floats]

    @property
    def no_mel(self) -> Floats:
        return self.mel[:, :0]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (self.mel, self.source, self.ahead, *self.kept))


@dataclass(frozen=True)
class Reach:
    """Frames that a window computes, counted from the utterance's start.

    Attributes:
        sourced: the first without a source.
        end: the first that is not emitted.
        settled: the first that is not the decoder's for good; those from there on are a guess.
        decoded: the first that the decoder does not read.
        frames: the first whose F0 is not computed.
    """

    sourced: int
    end: int
    settled: int
    decoded: int
    frames: int


class Pitch(NamedTuple):
    """F0 ``[T]``, turns and phase ``[T, harmonics]`` of frames."""

    f0: Doubles
    turns: Doubles
    cycles: Doubles


class OnnxVocoder(WindowedVocoder):
    """Sessions of one checkpoint; mels and waves are numpy arrays.

    Args:
        directory: of the graphs (:mod:`~cosyvoice_runtime.onnx.session`).
        threads: of one operation.

    Raises:
        EngineFileError: a graph is missing or no readable model.
    """

    def __init__(self, config: VocoderConfig, directory: Path, threads: int) -> None:
        super().__init__(config)
        self._context = context(config)
        # Of frames taken in for good, the next one's F0 is known as well: the phase goes on from there.
        self._f0_known = sum(config.f0_lookaheads) + 1
        self._f0 = open_session(graph_path(directory, HIFT_F0), threads)
        self._decoder = CpuDecoder(graph_path(directory, HIFT_DECODER), threads)
        self._shortest = {"mel": np.zeros((1, config.mel_bins), np.float32)}
        weights = self._f0.run(["source_weight", "source_bias"], self._shortest)
        self._source = source_of(config, *weights)

    def give_back_memory(self) -> None:
        """Return to the system what all networks of this process took for large calls.

        The arena gives back at the end of a run; this one takes no time.
        """
        self._f0.run(["f0"], self._shortest, giving_back_arena())
        give_back_heap()

    def start(self) -> CpuCarry:
        mel, none = np.zeros((self.config.mel_bins, 0), np.float32), np.zeros(0, np.float32)
        return CpuCarry(0, mel, 0, none, None, 0, none, self._decoder.start)

    def utterance_noise(self, seed: int) -> UtteranceNoise:
        return self._source.utterance_noise(seed)

    def joined_mel(self, mels: Sequence[Floats]) -> Floats:
        return np.concatenate(mels, axis=1)

    def between(
        self, mel: Floats, left: npt.NDArray[np.int64], right: npt.NDArray[np.int64], weight: Floats
    ) -> Floats:
        return self.blended(mel[:, left], mel[:, right], weight)

    def computed(self, states: Sequence[VocoderState], windows: Sequence[Window]) -> Iterator[WindowWave]:
        """One after the other: a batch would not be faster."""
        return (self._window(*each) for each in zip(states, windows, strict=True))

    def _window(self, state: VocoderState, window: Window) -> WindowWave:
        carry: CpuCarry = state.carried
        reach = self._reach(state, window, carry)
        known = np.concatenate([carry.mel, state.fresh], axis=1)
        guessed = max(0, reach.frames - carry.first - known.shape[1])
        mel = np.pad(known, ((0, 0), (0, guessed)), mode="edge")
        pitch = self._pitch(mel[:, : reach.frames - carry.first], carry, reach)
        source = np.concatenate([carry.source, self._fresh_source(state, reach, pitch)])
        taken, guess = self._decoded(mel, source, carry, reach, state.is_last)
        certain = np.concatenate([carry.ahead, taken.wave])
        # Some of it may have been emitted before, as a guess.
        past = self.config.hop * state.emitted - carry.written + len(carry.ahead)
        ahead = certain[past + self.config.hop * window.emit :].copy()
        carried = self._carry(known, source, carry, reach, pitch, taken, ahead)
        samples = np.concatenate([certain, guess])[past:]
        return WindowWave(Wave(len(samples), lambda: samples), carried)

    def _reach(self, state: VocoderState, window: Window, carry: CpuCarry) -> Reach:
        start = state.emitted - window.past
        end, decoded, frames = (start + count for count in (window.end, window.decoded, window.frames))
        sourced = carry.fed + len(carry.source) // self.config.hop
        if state.is_last:
            return Reach(sourced, end, decoded, decoded, frames)
        certain = end if window.guessed else min(decoded, frames - self._f0_known)
        # The first piece must be long enough for the decoder's graph.
        long_enough = carry.fed or certain > self._context.right
        return Reach(sourced, end, max(carry.fed, certain) if long_enough else 0, decoded, frames)

    def _pitch(self, mel: Floats, carry: CpuCarry, reach: Reach) -> Pitch:
        """The pitch of the frames from the first one without a source on."""
        place = reach.sourced - carry.first
        first = max(0, place - self._context.f0_past)
        [f0] = self._f0.run(["f0"], {"mel": np.ascontiguousarray(mel[:, first:].T)})
        own: Doubles = f0[place - first :]
        if carry.phase is not None:
            own[0] = carry.phase.f0
        turns = self._source.turns(own)
        return Pitch(own, turns, self._source.cycles(turns, carry.phase))

    def _fresh_source(self, state: VocoderState, reach: Reach, pitch: Pitch) -> Floats:
        """The source of the frames that the decoder reads and that have none yet."""
        count, noise = reach.decoded - reach.sourced, None
        if state.noise is not None:
            first = reach.sourced - state.emitted
            noise = state.noise.peek(first + count)[self.config.hop * first :]
        f0, turns, cycles = pitch
        return self._source.wave(f0[:count], turns[: count + 1], cycles[:count], not reach.sourced, noise)

    def _decoded(
        self, mel: Floats, source: Floats, carry: CpuCarry, reach: Reach, last: bool
    ) -> tuple[Taken, Floats]:
        """Samples that the decoder makes certain, and those of frames that it will read again."""
        hop, nothing = self.config.hop, np.zeros(0, np.float32)
        frames, count = mel[:, carry.fed - carry.first :], reach.settled - carry.fed
        taken = Taken(nothing, carry.kept)
        if count or last:
            taken = self._decoder.take(
                frames[:, :count], source[: hop * count], carry.kept, not carry.fed, last
            )
        if reach.settled == reach.decoded:
            return taken, nothing
        frames = frames[:, count : reach.decoded - carry.fed]
        guess = self._decoder.take(frames, source[hop * count :], taken.kept, not reach.settled, True)
        return taken, guess.wave

    def _carry(
        self,
        known: Floats,
        source: Floats,
        carry: CpuCarry,
        reach: Reach,
        pitch: Pitch,
        taken: Taken,
        ahead: Floats,
    ) -> CpuCarry:
        """State for the next window."""
        hop, sourced = self.config.hop, max(reach.sourced, reach.settled, reach.end)
        first = max(0, min(reach.settled, sourced - self._context.f0_past))
        following = min(sourced - reach.sourced, len(pitch.f0) - 1)
        return CpuCarry(
            first=first,
            mel=known[:, first - carry.first :].copy(),
            fed=reach.settled,
            source=source[hop * (reach.settled - carry.fed) : hop * (sourced - carry.fed)].copy(),
            phase=Phase(pitch.f0[following], pitch.cycles[following].copy()),
            written=carry.written + len(taken.wave),
            ahead=ahead,
            kept=taken.kept,
        )
