"""Chunks of mel to chunks of waveform, for several utterances at once, without seams.

Each chunk is vocoded together with enough frames around it that the result is that of the whole utterance.
With a smaller lookahead the missing frames are guessed by repeating the newest one. F0, phase and source of
what was emitted stay as they were used, so that the sines go on without a jump; what remains of the guess's
error at the join is faded out over a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from cosyvoice_runtime.cuda_graphs import groups
from cosyvoice_runtime.vocoder.hift import HiFT
from cosyvoice_runtime.vocoder.recorded_windows import RecordedWindows
from cosyvoice_runtime.vocoder.rows import Rows
from cosyvoice_runtime.vocoder.state import VocoderState, Window
from cosyvoice_runtime.vocoder.windows import WindowInputs, WindowOutputs, compute_windows


@torch.no_grad()
def stream(
    hift: HiFT,
    states: Sequence[VocoderState],
    mels: Sequence[Tensor],
    last: Sequence[bool],
    recorded: RecordedWindows | None = None,
) -> list[Tensor]:
    """Take the next mel of each utterance and return its next samples.

    Args:
        states: one per utterance; advanced in place.
        mels: [bins, n] each, n >= 0, on the network's device.
        last: the utterance ends with this chunk.
        recorded: replayed where one is large enough.

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
    for rows in _groups(windows, recorded):
        call_states, call_windows = [states[row] for row in rows], [windows[row] for row in rows]
        outputs = _compute(hift, call_states, call_windows, recorded)
        for index, row in enumerate(rows):
            waves[row] = _advance(states[row], windows[row], hift.config.hop, *(x[index] for x in outputs))
    return waves


def fade_length(hop: int) -> int:
    """Samples over which a guess gives way to what is right: 5 ms of a 20 ms frame."""
    return max(1, hop // 4)


def _groups(windows: Sequence[Window], recorded: RecordedWindows | None) -> Iterable[list[int]]:
    """Rows that emit something, as they go into one call each."""
    active = [row for row, window in enumerate(windows) if window.emit]
    if recorded is None:
        return [active] if active else []
    return groups(active, lambda row: recorded.holds(windows[row]), recorded.max_rows)


def _compute(
    hift: HiFT,
    states: Sequence[VocoderState],
    windows: Sequence[Window],
    recorded: RecordedWindows | None,
) -> WindowOutputs:
    call = None if recorded is None else recorded.fitting(windows)
    if call is not None:
        return call.run(states, windows)
    rows = Rows.of([window.frames for window in windows], hift.device)
    decoded = Rows.of([window.decoded for window in windows], hift.device)
    inputs = WindowInputs.of(hift, len(states), rows.width, states, windows)
    return compute_windows(hift, inputs, rows, decoded)


def _advance(
    state: VocoderState, window: Window, hop: int, f0: Tensor, cycles: Tensor, source: Tensor, wave: Tensor
) -> Tensor:
    """Move past what is emitted, given the row's F0, phase, source and waveform; the emitted samples."""
    first, end = hop * window.past, hop * window.end
    samples = _join(state.continuation, wave[first:end])
    state.emitted += window.emit
    if state.noise is not None:
        state.noise.skip(window.emit)
    keep = max(0, window.end - state.context.left)
    # Clones, because a view would keep the whole batch in memory.
    state.mel = state.mel[:, keep:].clone()
    state.source = source[hop * keep : end].clone()
    state.continuation = None
    if not state.is_last:
        state.f0, state.cycles = f0[window.end].clone(), cycles[window.end].clone()
        if state.lookahead < state.context.lookahead:
            state.continuation = wave[end : end + fade_length(hop)].clone()
    return samples


def _join(continuation: Tensor | None, samples: Tensor) -> Tensor:
    """Fade from how the previous chunk would have gone on to what is now known to be right."""
    if continuation is None:
        return samples
    length = len(continuation)
    weight = torch.arange(length, device=samples.device) / length
    return torch.cat([continuation.lerp(samples[:length], weight), samples[length:]])
