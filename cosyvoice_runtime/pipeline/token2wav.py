"""Speech tokens to waveform, chunk by chunk, for many utterances at once: flow, then vocoder."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from cosyvoice_runtime.cuda_graphs import GraphCapture
from cosyvoice_runtime.flow.flow import FlowPrompt
from cosyvoice_runtime.flow.graphed_calls import CallBuckets
from cosyvoice_runtime.flow.paged_call import PagedSolver
from cosyvoice_runtime.flow.stream import FlowPrefix, FlowState, FlowStream
from cosyvoice_runtime.speed import check_speed
from cosyvoice_runtime.vocoder.geometry import context
from cosyvoice_runtime.vocoder.graphed_windows import GraphedWindows
from cosyvoice_runtime.vocoder.hift import HiFT
from cosyvoice_runtime.vocoder.stream import stream as vocode
from cosyvoice_runtime.vocoder.windows import VocoderState

SpeedMark = tuple[int, int, Tensor | None]


class SpeedChange:
    """Linear interpolation of mel frames that may arrive in any number of parts.

    Output frame j is read at input position ``(j + 0.5) * speed - 0.5``. The published code stretches a
    whole utterance by the ratio of the rounded lengths instead, which is not known while it is spoken;
    the two never differ by more than one output frame (20 ms).

    Raises:
        InvalidInput: a speed outside 0.5 to 2.
    """

    def __init__(self, speed: float) -> None:
        check_speed(speed)
        self.speed = speed
        self._received = 0
        self._emitted = 0
        self._kept: Tensor | None = None

    def mark(self) -> SpeedMark:
        """Where it is, for :meth:`rewind`."""
        return self._received, self._emitted, self._kept

    def rewind(self, mark: SpeedMark) -> None:
        """Be again where it was."""
        self._received, self._emitted, self._kept = mark

    def push(self, mel: Tensor, last: bool) -> Tensor:
        """The frames that mel ``[bins, T]`` makes possible; with ``last``, all that are left."""
        if self.speed == 1.0:
            return mel
        mel = mel if self._kept is None else torch.cat([self._kept, mel], dim=1)
        first = self._received - (0 if self._kept is None else self._kept.shape[1])
        self._received = first + mel.shape[1]
        positions = self._positions(last, mel.device)
        below = positions.floor()
        weight = (positions - below).to(mel.dtype)
        left = (below.long() - first).clamp(min=0)
        right = (left + 1).clamp(max=mel.shape[1] - 1)
        stretched = mel[:, left].lerp(mel[:, right], weight) if len(positions) else mel[:, :0]
        # The next frame may still need the last two.
        self._kept = mel[:, -2:]
        return stretched

    def _positions(self, last: bool, device: torch.device) -> Tensor:
        """Input positions of the output frames that can be computed now: float64 ``[n]``."""
        end = self._complete()
        if last:
            end = max(end, int(self._received / self.speed))
        frames = torch.arange(self._emitted, max(end, self._emitted), dtype=torch.float64, device=device)
        self._emitted = max(end, self._emitted)
        return ((frames + 0.5) * self.speed - 0.5).clamp(min=0, max=max(self._received - 1, 0))

    def _complete(self) -> int:
        """Output frames whose right neighbour is here: position <= received - 1."""
        return max(math.floor((self._received - 0.5) / self.speed + 0.5), 0)


@dataclass(frozen=True)
class WaveState:
    """One utterance's flow, change of speed and vocoder."""

    flow: FlowState
    speed: SpeedChange
    vocoder: VocoderState


class Token2Wav:
    """Exact streaming: audio once sent never changes, and any schedule gives the same audio.

    The flow and the vocoder may be on different devices: between them goes the mel, 320 bytes a frame.

    Args:
        lookahead_frames: mel frames that the vocoder waits for; None is its default.
    """

    def __init__(self, flow: FlowStream, vocoder: HiFT, lookahead_frames: int | None = None) -> None:
        self.flow = flow
        self.vocoder = vocoder
        self.lookahead_frames = lookahead_frames
        self._windows: GraphedWindows | None = None

    def capture(
        self,
        buckets: CallBuckets,
        capture: GraphCapture,
        fused: PagedSolver | None = None,
        of_vocoder: GraphCapture | None = None,
    ) -> int:
        """Replay chunks of these sizes from now on; to be called before anything is opened.

        Args:
            fused: takes the place of the flow's steps.
            of_vocoder: where the vocoder runs on another device than the flow.

        Returns:
            the number of captured calls.
        """
        config, around = self.flow.flow.config, context(self.vocoder.config)
        block = config.frames_per_token * config.encoder.chunk_tokens
        frames = [around.left + block * blocks + around.lookahead for blocks in buckets.blocks]
        calls = self.flow.capture(buckets, capture, fused)
        self._windows = GraphedWindows(self.vocoder, buckets.rows, frames, of_vocoder or capture)
        return calls + len(self._windows)

    def open(self, voice: FlowPrompt | FlowPrefix, noise_seed: int | None, speed: float = 1.0) -> WaveState:
        noise = None if noise_seed is None else self.vocoder.utterance_noise(noise_seed)
        vocoder = VocoderState(self.vocoder.config, noise, self.lookahead_frames, self.vocoder.device)
        return WaveState(self.flow.open(voice), SpeedChange(speed), vocoder)

    def push(self, state: WaveState, tokens: Sequence[int], last: bool = False) -> None:
        """Append speech tokens; raises InvalidInput for one out of range and then changes nothing."""
        state.flow.push(tokens, last)

    def check(self, state: WaveState, tokens: Sequence[int]) -> None:
        """Raise what :meth:`push` would raise."""
        state.flow.check(tokens)

    def advance(self, states: Sequence[WaveState]) -> list[Tensor]:
        mels = self.flow.advance([state.flow for state in states])
        last = [state.flow.last for state in states]
        stretched = [
            state.speed.push(mel.to(self.vocoder.device, non_blocking=True), is_last)
            for state, mel, is_last in zip(states, mels, last, strict=True)
        ]
        return vocode(self.vocoder, [state.vocoder for state in states], stretched, last, self._windows)

    @contextmanager
    def all_or_nothing(self, states: Sequence[WaveState]) -> Iterator[None]:
        """Context in which these utterances advance; after an exception they are where they were before.

        Whoever advances then gets the same audio as if nothing had been tried.
        """
        marks = [(state.flow.mark(), state.speed.mark(), state.vocoder.mark()) for state in states]
        try:
            yield
        except BaseException:
            for state, (flow, speed, vocoder) in zip(states, marks, strict=True):
                self.flow.rewind(state.flow, flow)
                state.speed.rewind(speed)
                state.vocoder.rewind(vocoder)
            raise

    def close(self, state: WaveState) -> None:
        self.flow.close(state.flow)
