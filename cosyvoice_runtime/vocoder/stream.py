"""Chunks of mel to chunks of waveform, for several utterances at once, without seams.

Each chunk is vocoded together with enough frames around it that the result is that of the whole utterance.
With a smaller lookahead the missing frames are guessed by repeating the newest one. F0, phase and source of
what was emitted stay as they were used, so that the sines go on without a jump; what remains of the guess's
error at the join is faded out over a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cosyvoice_runtime.vocoder.hift import HiFT
from cosyvoice_runtime.vocoder.rows import Rows, integers
from cosyvoice_runtime.vocoder.source import PhaseCarry
from cosyvoice_runtime.vocoder.state import VocoderState, Window


@torch.no_grad()
def stream(
    hift: HiFT, states: Sequence[VocoderState], mels: Sequence[Tensor], last: Sequence[bool]
) -> list[Tensor]:
    """Take the next mel of each utterance and return its next samples.

    Args:
        states: one per utterance; advanced in place.
        mels: [bins, n] each, n >= 0, on the network's device.
        last: the utterance ends with this chunk.

    Returns:
        One [hop * m] float32 waveform per utterance: all frames received less its lookahead, less what was
        returned before; on the last chunk all that is left.

    Raises:
        ValueError: an utterance goes on after its last chunk, or mel has another shape; no state has changed.
    """
    for state, mel in zip(states, mels, strict=True):
        state.check(mel)
    for state, mel, is_last in zip(states, mels, last, strict=True):
        state.take(mel, is_last)
    windows = [state.window() for state in states]
    waves = [hift.m_source.offsets.new_zeros(0) for _ in states]
    active = [row for row, window in enumerate(windows) if window.emit]
    if active:
        batch = _Batch(hift, [states[row] for row in active], [windows[row] for row in active])
        for row, wave in zip(active, batch.run(), strict=True):
            waves[row] = wave
    return waves


def fade_length(hop: int) -> int:
    """Samples over which a guess gives way to what is right: 5 ms of a 20 ms frame."""
    return max(1, hop // 4)


class _Batch:
    """Utterances that emit something now; row i of each tensor starts at the i-th window's first frame."""

    def __init__(self, hift: HiFT, states: list[VocoderState], windows: list[Window]) -> None:
        self.hift, self.states, self.windows = hift, states, windows
        self.hop = hift.config.hop
        self.rows = Rows([window.frames for window in windows], hift.device)

    def run(self) -> list[Tensor]:
        """Waveform of each row's emitted frames; the states move past them."""
        mel, carry = self._mel(), self._carry()
        f0 = self._f0(mel, carry)
        source, cycles = self.hift.m_source(f0, self._noise(), self.rows, carry)
        self._recall(source)
        wave = self._decode(mel, source)
        return [self._advance(row, f0[row], cycles[row], source[row], wave[row]) for row in range(len(wave))]

    def _mel(self) -> Tensor:
        bins = self.hift.config.mel_bins
        mel = torch.zeros(len(self.states), bins, self.rows.width, device=self.rows.device)
        for row, state, window in zip(mel, self.states, self.windows, strict=True):
            known = state.mel.shape[1]
            row[:, :known] = state.mel
            row[:, known : window.frames] = state.mel[:, -1:]
        return mel

    def _carry(self) -> PhaseCarry:
        return PhaseCarry(
            frame=integers([window.past or -1 for window in self.windows], self.rows.device),
            cycles=torch.stack([state.cycles for state in self.states]),
            f0=torch.stack([state.f0 for state in self.states]),
        )

    def _f0(self, mel: Tensor, carry: PhaseCarry) -> Tensor:
        f0 = self.hift.f0_predictor(mel, self.rows)
        frames = torch.arange(self.rows.width, device=self.rows.device)
        return torch.where(frames == carry.frame[:, None], carry.f0[:, None], f0)

    def _noise(self) -> Tensor | None:
        """Noise of the frames not emitted yet, put together on the host and moved once."""
        if all(state.noise is None for state in self.states):
            return None
        pinned = self.rows.device.type == "cuda"
        noise = torch.zeros(len(self.states), self.hop * self.rows.width, pin_memory=pinned)
        for row, state, window in zip(noise, self.states, self.windows, strict=True):
            if state.noise is not None:
                fresh = state.noise.peek(window.frames - window.past)
                row[self.hop * window.past : self.hop * window.frames] = fresh
        return noise.to(self.rows.device, non_blocking=True)

    def _recall(self, source: Tensor) -> None:
        """Write the source of emitted frames as it was used."""
        for row, state in zip(source, self.states, strict=True):
            row[: len(state.source)] = state.source

    def _decode(self, mel: Tensor, source: Tensor) -> Tensor:
        rows = Rows([window.decoded for window in self.windows], self.rows.device)
        return self.hift.decoder(mel[..., : rows.width], source[:, : self.hop * rows.width], rows)

    def _advance(self, row: int, f0: Tensor, cycles: Tensor, source: Tensor, wave: Tensor) -> Tensor:
        state, window = self.states[row], self.windows[row]
        first, end = self.hop * window.past, self.hop * window.end
        samples = _join(state.continuation, wave[first:end])
        state.emitted += window.emit
        if state.noise is not None:
            state.noise.skip(window.emit)
        keep = max(0, window.end - state.context.left)
        # Clones, because a view would keep the whole batch in memory.
        state.mel = state.mel[:, keep:].clone()
        state.source = source[self.hop * keep : end].clone()
        state.continuation = None
        if not state.is_last:
            state.f0, state.cycles = f0[window.end].clone(), cycles[window.end].clone()
            if state.lookahead < state.context.lookahead:
                state.continuation = wave[end : end + fade_length(self.hop)].clone()
        return samples


def _join(continuation: Tensor | None, samples: Tensor) -> Tensor:
    """Fade from how the previous chunk would have gone on to what is now known to be right."""
    if continuation is None:
        return samples
    length = len(continuation)
    weight = torch.arange(length, device=samples.device) / length
    return torch.cat([continuation.lerp(samples[:length], weight), samples[length:]])
