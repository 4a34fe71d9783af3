"""Stretches of several utterances, each with enough around it, as one call, which may be a CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyvoice_runtime.gpu.buckets import bucket_for
from cosyvoice_runtime.gpu.cuda_graphs import GraphCapture
from cosyvoice_runtime.gpu.transfer import Kind, Parcel
from cosyvoice_runtime.vocoder.geometry import context
from cosyvoice_runtime.vocoder.state import VocoderState, Window
from cosyvoice_runtime.vocoder.torch.hift import HiFT
from cosyvoice_runtime.vocoder.torch.source import FROM_THE_START, PhaseCarry, Rows
from cosyvoice_runtime.vocoder.torch.window_memory import GivenMel, VocoderCarry, carry_layout


class WindowLengths(NamedTuple):
    """The whole numbers of every row, [B] int64, counted from the window's start; columns of one tensor.

    Attributes:
        frames: whose F0 is computed.
        decoded: frames that the decoder reads.
        past: frames emitted before.
        end: first frame that is not emitted yet.
        held: frames of the carried mel.
        received: frames of mel there are.
    """

    frames: Tensor
    decoded: Tensor
    past: Tensor
    end: Tensor
    held: Tensor
    received: Tensor

    @staticmethod
    def row(state: VocoderState, window: Window) -> tuple[int, ...]:
        """Numbers of an utterance's window."""
        received = state.held + state.fresh.shape[1]
        return window.frames, window.decoded, window.past, window.end, state.held, received

    @staticmethod
    def idle_row(width: int) -> tuple[int, ...]:
        """Numbers of a row without an utterance."""
        return width, width, 0, 0, 0, width

    @classmethod
    def unpack(cls, packed: Tensor) -> WindowLengths:
        """Views of ``[B, 6]``."""
        return cls(*packed.unbind(1))


class WindowInputs:
    """Row i of each tensor is the i-th window's; rows without an utterance hold anything.

    Args:
        given: taken in by all calls, for calls that come again and again.

    Attributes:
        packed: [B, 6] int64, :class:`WindowLengths` in one tensor.
        places: [B, 2, W] int64, where the frames of mel taken in since the last window are: each is between
            two of the given ones.
        weight: [B, W] float32, how far from the first of them to the second.
        noise: [B, hop * W] float32, from the first frame that is to be emitted on.
        given: what mel there is.
        carried: of each row.
    """

    def __init__(self, hift: HiFT, rows: int, width: int, given: GivenMel | None = None) -> None:
        config, device = hift.config, hift.device
        layout = carry_layout(config, device)
        self.width, self._hop = width, config.hop
        kinds: list[Kind] = [
            ((rows, len(WindowLengths._fields)), torch.int64),
            ((rows, 2, width), torch.int64),
            ((rows, width), torch.float32),
            ((rows, config.hop * width), torch.float32),
        ]
        self._parcel = Parcel(device, kinds, again=given is not None)
        self.packed, self.places, self.weight, self.noise = self._parcel.tensors
        self.given = given or GivenMel(rows, width, config.mel_bins, device)
        self.carried = VocoderCarry(torch.zeros(rows, layout.size, device=device), layout)
        self._first_rows: dict[int, Tensor] = {}
        self.fill_([], [])

    def fill_(self, states: Sequence[VocoderState], windows: Sequence[Window]) -> None:
        """Take the first rows from utterances; those after them are without one from now on."""
        numbers, places, weight, noise = self._parcel.host()
        numbers[:] = WindowLengths.idle_row(self.width)
        fresh = self.given.take([state.fresh for state in states]) if states else []
        for row, (state, window, given) in enumerate(zip(states, windows, fresh, strict=True)):
            numbers[row] = WindowLengths.row(state, window)
            count = len(given.weight)
            places[row, :, :count] = given.left, given.right
            weight[row, :count] = given.weight
            if state.noise is None:
                noise[row] = 0
            else:
                next_ = state.noise.peek(window.frames - window.past)
                noise[row, self._hop * window.past : self._hop * window.frames] = next_
        self._parcel.send(3, len(states))
        if states:
            torch.stack([state.carried.flat for state in states], out=self._carried_of(len(states)))

    def _carried_of(self, rows: int) -> Tensor:
        if rows not in self._first_rows:
            self._first_rows[rows] = self.carried.flat[:rows]
        return self._first_rows[rows]

    @property
    def lengths(self) -> WindowLengths:
        return WindowLengths.unpack(self.packed)

    def rows(self) -> tuple[Rows, Rows]:
        """Row ends for the F0 predictor and source, and for the decoder; one graph serves all lengths."""
        return Rows(self.lengths.frames, self.width), Rows(self.lengths.decoded, self.width)

    def mel(self) -> Tensor:
        """[B, bins, W]: what is carried, what is fresh, and the newest frame repeated to the row's end."""
        lengths, waiting = self.lengths, self.carried.mel.shape[2]
        frame = torch.arange(self.width, device=self.packed.device)
        left, right = self.given.memory[self.places].unbind(1)
        weight = self.weight[..., None]
        fresh = torch.where(weight > 0, left.lerp(right, weight), left)
        known = torch.minimum(frame, lengths.received[:, None] - 1)
        held = lengths.held[:, None]
        place = torch.where(known < held, known, known - held + waiting)
        both = torch.cat([self.carried.mel, fresh.transpose(1, 2)], dim=2)
        mel = _picked(both, place[:, None])
        return mel.masked_fill_((frame >= lengths.frames[:, None])[:, None], 0)


def _picked(signal: Tensor, places: Tensor) -> Tensor:
    """Values along the last axis at int64 places that are the same for axis 1."""
    return signal.gather(-1, places.expand(*signal.shape[:-1], -1))


class WindowOutputs(NamedTuple):
    """Results of the windows of a call.

    Attributes:
        wave: [B, hop * W] float32.
        carried: state for the next windows, as :class:`VocoderCarry` has it: [B, size] float32.
    """

    wave: Tensor
    carried: Tensor


def compute_windows(hift: HiFT, inputs: WindowInputs, rows: Rows, decoded: Rows) -> WindowOutputs:
    """Compute windows.

    Args:
        rows: ends of rows for F0 and source.
        decoded: ends of rows for the decoder, which may be narrower, and so is then the wave.
    """
    frames = torch.arange(rows.width, device=rows.device)
    samples = torch.arange(hift.config.hop * rows.width, device=rows.device)
    past, carried, mel = inputs.lengths.past, inputs.carried, inputs.mel()
    go_on = torch.where(past > 0, past, FROM_THE_START)
    f0 = hift.f0_predictor(mel, rows)
    f0 = torch.where(frames == go_on[:, None], carried.f0[:, None], f0)
    source, cycles = hift.m_source(f0, inputs.noise, rows, PhaseCarry(go_on, carried.cycles, carried.f0))
    used = F.pad(carried.source, (0, source.shape[1] - carried.source.shape[1]))
    source = torch.where(samples < hift.config.hop * past[:, None], used, source)
    heard = source[:, : hift.config.hop * decoded.width]
    wave = hift.decoder(mel[..., : decoded.width], heard, decoded)
    return WindowOutputs(wave, _carry_on(hift, inputs, mel, source, f0, cycles))


def _carry_on(
    hift: HiFT, inputs: WindowInputs, mel: Tensor, source: Tensor, f0: Tensor, cycles: Tensor
) -> Tensor:
    """State that the next window takes over: frames from the emitted ones on that it looks back on."""
    end, hop = inputs.lengths.end[:, None], hift.config.hop
    first = (end - context(hift.config).left).clamp(min=0)
    frames, samples = (
        (start + torch.arange(size, device=end.device)).clamp(max=most - 1)
        for start, size, most in (
            (first, inputs.carried.mel.shape[2], mel.shape[2]),
            (hop * first, inputs.carried.source.shape[1], source.shape[1]),
        )
    )
    following = end.clamp(max=f0.shape[1] - 1)
    return inputs.carried.layout.packed(
        mel=_picked(mel, frames[:, None]),
        source=_picked(source, samples),
        f0=_picked(f0, following).squeeze(1),
        cycles=_picked(cycles.transpose(1, 2), following[:, None]).squeeze(2),
    )


class GraphedWindow:
    """A captured call of one shape."""

    def __init__(self, hift: HiFT, rows: int, width: int, given: GivenMel, capture: GraphCapture) -> None:
        self._inputs = WindowInputs(hift, rows, width, given)
        self._graph = capture(lambda: compute_windows(hift, self._inputs, *self._inputs.rows()))
        self._waves: dict[int, tuple[Tensor, Tensor]] = {}

    def run(self, states: Sequence[VocoderState], windows: Sequence[Window]) -> WindowOutputs:
        """Compute windows of these utterances; the next call overwrites the waves."""
        self._inputs.fill_(states, windows)
        self._graph.replay()
        result, count = self._graph.result, len(states)
        whole, waves = self._waves.get(count, (None, result.wave))
        if whole is not result.wave:  # a graph may leave its result in one of several places
            waves = result.wave[:count]
            self._waves[count] = result.wave, waves
        return WindowOutputs(waves, result.carried.clone())


class GraphedWindows:
    """A captured call for every combination of rows and frames, both ascending, all made at the start.

    One runs at a time, so they share the memory of the mel that they take in.

    Raises:
        ValueError: the most frames are too few for any new ones.

    Attributes:
        max_rows: most windows of a call.
        max_new_frames: most mel frames that an utterance may take in between two calls.
    """

    @torch.no_grad()
    def __init__(self, hift: HiFT, rows: Sequence[int], frames: Sequence[int], capture: GraphCapture) -> None:
        around = context(hift.config)
        self.max_rows = rows[-1]
        self.max_new_frames = frames[-1] - around.left - around.lookahead
        if self.max_new_frames < 1:
            raise ValueError(f"windows of {frames[-1]} frames hold no new ones")
        self._rows, self._frames = rows, frames
        given = GivenMel(rows[-1], frames[-1], hift.config.mel_bins, hift.device)
        # Largest first: the smaller ones then find their memory in the pool.
        self._windows = {
            (count, width): GraphedWindow(hift, count, width, given, capture)
            for count in reversed(rows)
            for width in reversed(frames)
        }

    def __len__(self) -> int:
        return len(self._windows)

    def fitting(self, windows: Sequence[Window]) -> GraphedWindow:
        """The smallest for a call of up to :attr:`max_rows` windows."""
        width = max(self.width(window) for window in windows)
        return self._windows[bucket_for(self._rows, len(windows)), width]

    def width(self, window: Window) -> int:
        """Frames of the call that a window would have for itself."""
        return bucket_for(self._frames, window.frames)
