"""Chunks of mel to chunks of waveform, for several utterances at once, without seams.

Each chunk is vocoded together with enough frames around it that the result is that of the whole utterance.
With a smaller lookahead the missing frames are guessed by repeating the newest one. F0, phase and source of
what was emitted stay as they were used, so that the sines go on without a jump; what remains of the guess's
error at the join is faded out over a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyvoice_runtime.cuda_graphs import split_rows
from cosyvoice_runtime.speed import check_speed
from cosyvoice_runtime.vocoder.carry import VocoderCarry
from cosyvoice_runtime.vocoder.graphed_windows import GraphedWindows
from cosyvoice_runtime.vocoder.hift import HiFT
from cosyvoice_runtime.vocoder.rows import Rows
from cosyvoice_runtime.vocoder.windows import (
    VocoderState,
    Window,
    WindowInputs,
    WindowOutputs,
    compute_windows,
)


def change_speed(mel: Tensor, speed: float) -> Tensor:
    """Mel [B, bins, T] of a whole utterance, linearly interpolated to int(T / speed) frames (at least one).

    Raises:
        InvalidInput: a speed outside 0.5 to 2.0.
    """
    check_speed(speed)
    if speed == 1:
        return mel
    return F.interpolate(mel, size=max(1, int(mel.shape[-1] / speed)), mode="linear")


@torch.no_grad()
def stream(
    hift: HiFT,
    states: Sequence[VocoderState],
    mels: Sequence[Tensor],
    last: Sequence[bool],
    graphs: GraphedWindows | None = None,
) -> list[Tensor]:
    """Take the next mel of each utterance and return its next samples.

    Args:
        states: one per utterance; advanced in place.
        mels: [bins, n] each, n >= 0, on the network's device.
        last: the utterance ends with this chunk.
        graphs: replayed for all calls; longer mel is then vocoded in several.

    Returns:
        One [hop * m] float32 waveform per utterance: all frames received less its lookahead, less what was
        returned before; on the last chunk all that is left.

    Raises:
        ValueError: an utterance goes on after its last chunk, or mel has another shape; no state has changed.
    """
    for state, mel in zip(states, mels, strict=True):
        state.check(mel)
    waves: list[list[Tensor]] = [[] for _ in states]
    parts = [_parts(mel, graphs) for mel in mels]
    for turn in range(max(map(len, parts), default=0)):
        windows: dict[int, Window] = {}
        for row, state in enumerate(states):
            if turn < len(parts[row]):
                more = turn + 1 < len(parts[row])
                state.take(parts[row][turn], last[row] and not more)
                windows[row] = state.window(more)
        for row, wave in _vocode(hift, states, windows, graphs):
            waves[row].append(wave)
    nothing = hift.m_source.offsets.new_zeros(0)
    return [torch.cat(wave) if len(wave) > 1 else next(iter(wave), nothing) for wave in waves]


def _parts(mel: Tensor, graphs: GraphedWindows | None) -> Sequence[Tensor]:
    """As much as a call takes, one after the other."""
    if graphs is None or mel.shape[1] <= graphs.max_new_frames:
        return (mel,)
    return mel.split(graphs.max_new_frames, dim=1)


def fade_length(hop: int) -> int:
    """Samples over which a guess gives way to what is right: 5 ms of a 20 ms frame."""
    return max(1, hop // 4)


def _vocode(
    hift: HiFT,
    states: Sequence[VocoderState],
    windows: Mapping[int, Window],
    graphs: GraphedWindows | None,
) -> Iterator[tuple[int, Tensor]]:
    """Rows that emit something, and their new samples."""
    emitting = [row for row, window in windows.items() if window.emit]
    for rows in _calls(emitting, windows, graphs):
        outputs = _compute(hift, [states[row] for row in rows], [windows[row] for row in rows], graphs)
        carried = outputs.carried.rows()
        for index, row in enumerate(rows):
            wave = outputs.wave[index]
            yield row, _advance(states[row], windows[row], hift.config.hop, wave, carried[index])


def _calls(
    rows: Sequence[int], windows: Mapping[int, Window], graphs: GraphedWindows | None
) -> Iterator[Sequence[int]]:
    """Rows of each call. Captured calls pad to their own width, so windows of another go in another call."""
    if graphs is None:
        yield from [rows] if rows else []
        return
    widths: dict[int, list[int]] = {}
    for row in rows:
        widths.setdefault(graphs.width(windows[row]), []).append(row)
    for alike in widths.values():
        yield from split_rows(alike, graphs.max_rows)


def _compute(
    hift: HiFT,
    states: Sequence[VocoderState],
    windows: Sequence[Window],
    graphs: GraphedWindows | None,
) -> WindowOutputs:
    if graphs is not None:
        return graphs.fitting(windows).run(states, windows)
    rows = Rows.of([window.frames for window in windows], hift.device)
    decoded = Rows.of([window.decoded for window in windows], hift.device)
    inputs = WindowInputs(hift, len(states), rows.width)
    inputs.fill_(states, windows)
    return compute_windows(hift, inputs, rows, decoded)


def _advance(state: VocoderState, window: Window, hop: int, wave: Tensor, carried: VocoderCarry) -> Tensor:
    """Move past what is emitted, given the row's waveform and what it carries on; the emitted samples."""
    end = hop * window.end
    samples = _join(state.continuation, wave[hop * window.past : end])
    state.move(window.emit, carried)
    # A clone, because a view would keep the whole batch in memory.
    guessed = window.guessed and not state.is_last
    state.continuation = wave[end : end + fade_length(hop)].clone() if guessed else None
    return samples


def _join(continuation: Tensor | None, samples: Tensor) -> Tensor:
    """Fade from how the previous chunk would have gone on to what is now known to be right."""
    if continuation is None:
        return samples
    length = len(continuation)
    weight = torch.arange(length, device=samples.device) / length
    return torch.cat([continuation.lerp(samples[:length], weight), samples[length:]])
