"""The vocoder on ONNX Runtime and numpy: windows of mel to waveform."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.checkpoint.config import VocoderConfig
from cosyvoice_runtime.onnx_cpu import hift_decoder_graph, hift_f0_graph
from cosyvoice_runtime.onnx_cpu.session import open_session
from cosyvoice_runtime.onnx_cpu.source import CpuSource, Doubles, Phase
from cosyvoice_runtime.onnx_cpu.source_noise import CpuSourceNoise
from cosyvoice_runtime.onnx_cpu.wave_files import graph_path
from cosyvoice_runtime.wave.context import context
from cosyvoice_runtime.wave.geometry import F0_KERNEL, F0_LAYERS
from cosyvoice_runtime.wave.vocoder_state import Carry, VocoderState, Window
from cosyvoice_runtime.wave.windowed_vocoder import Waveforms, WindowedVocoder, WindowWave

F0_RADIUS = F0_LAYERS * (F0_KERNEL // 2)
"""Frames that the F0 predictor looks around."""


@dataclass(frozen=True)
class CpuCarry:
    """What an utterance carries from one window to the next.

    Attributes:
        mel: ``[bins, n]``, emitted frames as far as the next window looks back, then those that wait.
        source: of the emitted ones among them, as it was used.
        phase: used for the first frame that waits; None before anything was emitted.
    """

    mel: Floats
    source: Floats
    phase: Phase | None = None

    @property
    def nbytes(self) -> int:
        return self.mel.nbytes + self.source.nbytes


class OnnxVocoder(WindowedVocoder):
    """Sessions of one checkpoint; mels and waves are numpy arrays.

    Args:
        directory: of the graphs (:mod:`~cosyvoice_runtime.onnx_cpu.wave_files`).
        threads: of one operation.

    Raises:
        EngineFileError: a graph is missing or no readable model.
    """

    def __init__(self, config: VocoderConfig, directory: Path, threads: int) -> None:
        super().__init__(config)
        self._context = context(config)
        self._f0 = open_session(graph_path(directory, hift_f0_graph.NAME), threads)
        decoder = graph_path(directory, hift_decoder_graph.NAME)
        self._decoder = open_session(decoder, threads, own_layouts=True)
        weights = self._f0.run(
            ["source_weight", "source_bias"], {"mel": np.zeros((1, config.mel_bins), np.float32)}
        )
        self._source = CpuSource(config, *weights)

    def advance(
        self, states: Sequence[VocoderState], mels: Sequence[Floats], last: Sequence[bool]
    ) -> list[Floats]:
        return self.advanced(states, mels, last)

    def start(self) -> CpuCarry:
        return CpuCarry(np.zeros((self.config.mel_bins, 0), np.float32), np.zeros(0, np.float32))

    def utterance_noise(self, seed: int) -> CpuSourceNoise:
        return CpuSourceNoise(seed, self.config.hop)

    def here(self, mel: Floats) -> Floats:
        return mel

    def joined(self, arrays: Sequence[Floats]) -> Floats:
        return np.concatenate(arrays, axis=-1) if arrays else np.zeros(0, np.float32)

    def kept(self, wave: Floats) -> Floats:
        return wave.copy()

    def blended(self, first: Floats, second: Floats, weight: Floats) -> Floats:
        return first + weight * (second - first)

    def between(
        self, mel: Floats, left: npt.NDArray[np.int64], right: npt.NDArray[np.int64], weight: Floats
    ) -> Floats:
        return self.blended(mel[:, left], mel[:, right], weight)

    def sent(self, waves: Sequence[Floats]) -> Waveforms:
        """They are there."""
        return lambda: list(waves)

    def computed(self, states: Sequence[VocoderState], windows: Sequence[Window]) -> Iterator[WindowWave]:
        """One after the other: rows side by side would not be faster."""
        return (self._window(*each) for each in zip(states, windows, strict=True))

    def _window(self, state: VocoderState, window: Window) -> WindowWave:
        carried, past = _own(state.carried), window.past
        known = np.concatenate([carried.mel[:, : state.held], state.fresh], axis=1)
        mel = known[:, : window.frames]
        if mel.shape[1] < window.frames:
            mel = np.pad(mel, ((0, 0), (0, window.frames - mel.shape[1])), mode="edge")
        phase = carried.phase if past else None
        f0 = self._predicted(mel, past, phase)
        turns = self._source.turns(f0)
        cycles = self._source.cycles(turns, phase)
        source = self._heard(state, window, f0, turns, cycles)
        inputs = {"mel": np.ascontiguousarray(mel[None, :, : window.decoded]), "source": source[None]}
        [wave] = self._decoder.run(["wave"], inputs)[0]
        return WindowWave(wave, self._carry(known, source, window, f0, cycles))

    def _predicted(self, mel: Floats, past: int, phase: Phase | None) -> Doubles:
        """F0 of the window's frames from ``past`` on."""
        first = max(0, past - F0_RADIUS)
        [f0] = self._f0.run(["f0"], {"mel": np.ascontiguousarray(mel[:, first:].T)})
        own: Doubles = f0[past - first :]
        if phase is not None:
            own[0] = phase.f0
        return own

    def _heard(
        self, state: VocoderState, window: Window, f0: Doubles, turns: Doubles, cycles: Doubles
    ) -> Floats:
        """Source of the frames that the decoder reads: of those before as it was, then the next."""
        hop, new = self.config.hop, window.decoded - window.past
        noise = None if state.noise is None else state.noise.peek(window.frames - window.past)[: hop * new]
        starts = state.emitted == 0
        fresh = self._source.wave(f0[:new], turns[: new + 1], cycles[:new], starts, noise)
        return np.concatenate([_own(state.carried).source[: hop * window.past], fresh])

    def _carry(self, known: Floats, source: Floats, window: Window, f0: Doubles, cycles: Doubles) -> CpuCarry:
        """What the next window takes over: frames from the emitted ones on that it looks back on."""
        first, hop = max(0, window.end - self._context.left), self.config.hop
        following = min(window.emit, len(f0) - 1)
        return CpuCarry(
            mel=known[:, first:].copy(),
            source=source[hop * first : hop * window.end].copy(),
            phase=Phase(f0[following], cycles[following].copy()),
        )


def _own(carried: Carry) -> CpuCarry:
    assert isinstance(carried, CpuCarry)
    return carried
