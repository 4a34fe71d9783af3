"""Speech tokens to waveform, chunk by chunk, for many utterances at once: flow, then vocoder."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.errors import FLOW, VOCODER
from cosyvoice_runtime.flow.paged_flow import FlowState, PagedFlow
from cosyvoice_runtime.flow.voice_flow import FlowPrefix, FlowPrompt
from cosyvoice_runtime.token2wav.speed_change import SpeedChange
from cosyvoice_runtime.vocoder.state import VocoderState
from cosyvoice_runtime.vocoder.windowed_vocoder import Waveforms, WindowedVocoder, keeping


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

    def __init__(
        self, flow: PagedFlow, vocoder: WindowedVocoder, lookahead_frames: int | None = None
    ) -> None:
        self.flow = flow
        self.vocoder = vocoder
        self.lookahead_frames = lookahead_frames

    @property
    def unit_tokens(self) -> int:
        """Any cut gives the same audio; at the flow's blocks it costs nothing."""
        return self.flow.flow.config.encoder.chunk_tokens

    @property
    def fused_vocoder(self) -> bool:
        """Whether fused kernels have taken the vocoder's place."""
        return self.vocoder.fused

    @property
    def sample_rate(self) -> int:
        """Samples per second."""
        return self.vocoder.config.sample_rate

    def open(self, voice: FlowPrompt | FlowPrefix, noise_seed: int | None, speed: float = 1.0) -> WaveState:
        """Start an utterance. Pair with :meth:`close`."""
        vocoder = self.vocoder.open(noise_seed, self.lookahead_frames)
        change = SpeedChange(speed, self.vocoder.joined_mel, self.vocoder.between)
        return WaveState(self.flow.open(voice), change, vocoder)

    def push(self, state: WaveState, tokens: Sequence[int], last: bool = False) -> None:
        """Append speech tokens; raises InvalidInput for one out of range and then changes nothing."""
        state.flow.push(tokens, last)

    def check(self, state: WaveState, tokens: Sequence[int]) -> None:
        """Raise what :meth:`push` would raise."""
        state.flow.check(tokens)

    def advance(self, states: Sequence[WaveState]) -> list[npt.NDArray[np.float32]]:
        """Compute all that is ready: samples ``[n]`` of each utterance, after those before."""
        return self.launch(states)()

    def launch(self, states: Sequence[WaveState]) -> Waveforms:
        """Begin to :meth:`advance`; a GPU goes on by itself, and the utterances may be launched again.

        Returns:
            what waits for the waveforms, of the earliest launch first. Then nothing of this launch is under
            way: the utterances may go on in another stream, and what they held may be given to others.
        """
        mels = self.flow.mels([state.flow for state in states])
        last = [state.flow.last for state in states]
        with self.vocoder.concurrent():
            stretched = [
                state.speed.push(self.vocoder.here(mel), is_last)
                for state, mel, is_last in zip(states, mels, last, strict=True)
            ]
            waves = self.vocoder.advance([state.vocoder for state in states], stretched, last)
            sent = keeping(self.vocoder.sent(waves), mels)  # which the flow's next calls would overwrite
            if any(len(wave) for wave in waves):
                return sent  # samples come to the host after all else
            return partial(_after, self.flow.begun(), sent)

    @contextmanager
    def all_or_nothing(self, states: Sequence[WaveState]) -> Iterator[object]:
        """Context in which these utterances advance; after an exception they are where they were before.

        Whoever advances then gets the same audio as if nothing had been tried. The context's value keeps the
        arrays of before.
        """
        marks = [(state.flow.mark(), state.speed.mark(), state.vocoder.mark()) for state in states]
        try:
            yield marks
        except BaseException:
            for state, (flow, speed, vocoder) in zip(states, marks, strict=True):
                self.flow.rewind(state.flow, flow)
                state.speed.rewind(speed)
                state.vocoder.rewind(vocoder)
            raise

    def broken_stage(self, state: WaveState) -> str:
        """The first stage that gave NaN or infinity in an utterance whose samples hold some.

        It waits for the device, which such an utterance alone has to.
        """
        mels = state.vocoder.carried.mel, state.vocoder.fresh
        return VOCODER if all(map(is_finite, mels)) else FLOW

    def held_pages(self, state: WaveState) -> int:
        """Pages that the utterance alone holds."""
        return self.flow.held_pages(state.flow)

    def lost_pages(self, state: WaveState) -> int:
        """Pages that the utterance takes to be where it was when it lost them; 0 if it did not."""
        return self.flow.lost_pages(state.flow)

    def wanted_pages(self, state: WaveState) -> int:
        """Pages that :meth:`advance` takes for what is ready, those that were lost included."""
        return self.flow.wanted_pages(state.flow)

    def give_up(self, state: WaveState) -> None:
        """Take the pages of an utterance that is not under way: they are made anew when it advances."""
        self.flow.give_up(state.flow)

    def close(self, state: WaveState) -> None:
        """Free what the utterance holds; harmless when repeated."""
        self.flow.close(state.flow)


def is_finite(values: Any) -> bool:
    """Whether an array of any runtime holds neither NaN nor infinity."""
    return math.isfinite(float((values * 0).sum()))


def _after(wait: Callable[[], None], waveforms: Waveforms) -> list[npt.NDArray[np.float32]]:
    wait()
    return waveforms()
