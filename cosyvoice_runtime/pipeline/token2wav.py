"""Speech tokens to waveform, chunk by chunk, for many utterances at once: flow, then vocoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from cosyvoice_runtime.cuda_graphs import GraphCapture
from cosyvoice_runtime.flow.flow import FlowPrompt
from cosyvoice_runtime.flow.graphed_calls import CallBuckets
from cosyvoice_runtime.flow.stream import FlowPrefix, FlowState, FlowStream
from cosyvoice_runtime.pipeline.speed import SpeedChange
from cosyvoice_runtime.vocoder.geometry import context
from cosyvoice_runtime.vocoder.graphed_windows import GraphedWindows
from cosyvoice_runtime.vocoder.hift import HiFT
from cosyvoice_runtime.vocoder.noise import SourceNoise
from cosyvoice_runtime.vocoder.state import VocoderState
from cosyvoice_runtime.vocoder.stream import stream as vocode


class Synthesis(Protocol):
    """What turns the tokens of utterances in progress into waveform; their states are its own."""

    def open(self, voice: FlowPrompt | FlowPrefix, noise_seed: int | None, speed: float = 1.0) -> Any:
        """Start an utterance; pair with :meth:`close`. No seed means a source without noise."""

    def push(self, state: Any, tokens: Sequence[int], last: bool = False) -> None:
        """Append speech tokens; ``last`` says that no more will come."""

    def advance(self, states: Sequence[Any]) -> list[Tensor]:
        """The next samples, float32 ``[n]`` at 24 kHz, of each utterance; n may be 0."""

    def close(self, state: Any) -> None:
        """Free what the utterance holds; harmless when repeated."""


@dataclass(frozen=True)
class WaveState:
    """One utterance's flow, change of speed and vocoder."""

    flow: FlowState
    speed: SpeedChange
    vocoder: VocoderState


class Token2Wav:
    """Exact streaming: audio once sent never changes, and any schedule gives the same audio.

    Args:
        lookahead_frames: mel frames that the vocoder waits for; None is its default.
    """

    def __init__(self, flow: FlowStream, vocoder: HiFT, lookahead_frames: int | None = None) -> None:
        self.flow = flow
        self.vocoder = vocoder
        self.lookahead_frames = lookahead_frames
        self._windows: GraphedWindows | None = None

    def capture(self, buckets: CallBuckets, capture: GraphCapture) -> int:
        """Replay chunks of these sizes from now on; to be called before anything is opened.

        Returns:
            the number of captured calls.
        """
        config, around = self.flow.flow.config, context(self.vocoder.config)
        chunk = config.frames_per_token * config.encoder.chunk_tokens
        frames = [around.left + chunk * chunks + around.lookahead for chunks in buckets.chunks]
        calls = self.flow.capture(buckets, capture)
        self._windows = GraphedWindows(self.vocoder, buckets.rows, frames, capture)
        return calls + len(self._windows)

    def open(self, voice: FlowPrompt | FlowPrefix, noise_seed: int | None, speed: float = 1.0) -> WaveState:
        config = self.vocoder.config
        noise = None if noise_seed is None else SourceNoise(noise_seed, config.hop)
        vocoder = VocoderState(config, noise, self.lookahead_frames, self.vocoder.device)
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
            state.speed.push(mel, is_last) for state, mel, is_last in zip(states, mels, last, strict=True)
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
