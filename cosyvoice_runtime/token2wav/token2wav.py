"""Speech tokens to waveform, chunk by chunk, for many utterances at once: flow, then vocoder."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.errors import FLOW, VOCODER
from cosyvoice_runtime.flow.paged_flow import FlowState, PagedFlow
from cosyvoice_runtime.flow.voice_flow import FlowPrefix, FlowPrompt, VoiceFlow
from cosyvoice_runtime.token2wav.speed_change import SpeedChange
from cosyvoice_runtime.vocoder.state import VocoderState
from cosyvoice_runtime.vocoder.windowed_vocoder import Waveforms, WindowedVocoder, keeping
from cosyvoice_runtime.voice.digest import content_hash
from cosyvoice_runtime.voice.voice import FLOW_FRAMES_PER_TOKEN, Voice

MORE_THAN_ANY = 1_000_000
"""Tokens that no utterance has; as :attr:`AnyToken2Wav.unit_tokens`, a push is never cut."""


class AnyToken2Wav(ABC):
    """Flow and vocoder of one checkpoint, for many utterances at once.

    Attributes:
        flow: its flow.
        unit_tokens: at multiples of so many tokens a push may be cut into several without being heard.
    """

    flow: VoiceFlow
    unit_tokens: int

    @property
    @abstractmethod
    def fused_vocoder(self) -> bool:
        """Whether fused kernels have taken the vocoder's place."""

    @property
    @abstractmethod
    def sample_rate(self) -> int:
        """Samples per second."""

    @abstractmethod
    def open(self, voice: FlowPrompt | FlowPrefix, noise_seed: int, speed: float = 1.0) -> Any:
        """Start an utterance. Pair with :meth:`close`.

        Raises:
            InvalidInput: the prompt does not fit the checkpoint, or a speed outside 0.5 to 2.
        """

    @abstractmethod
    def push(self, state: Any, tokens: Sequence[int], last: bool = False) -> None:
        """Append speech tokens; raises InvalidInput for one out of range and then changes nothing."""

    @abstractmethod
    def check(self, state: Any, tokens: Sequence[int]) -> None:
        """Raise what :meth:`push` would raise."""

    def advance(self, states: Sequence[Any]) -> list[Floats]:
        """Compute all that is ready: samples ``[n]`` of each utterance, after those before."""
        return self.launch(states)()

    @abstractmethod
    def launch(self, states: Sequence[Any]) -> Waveforms:
        """Begin to :meth:`advance`; a GPU goes on by itself, and the utterances may be launched again.

        Returns:
            a function that waits for the waveforms, of the earliest launch first. Then nothing of this launch
            is under way: the utterances may go on in another stream, and what they held may be freed.
        """

    @abstractmethod
    def all_or_nothing(self, states: Sequence[Any]) -> AbstractContextManager[object]:
        """Context in which these utterances advance; after an exception they are where they were before.

        Whoever advances then gets the same audio as if nothing had been tried. The context's value keeps what
        may not be freed while they are under way.
        """

    @abstractmethod
    def broken_stage(self, state: Any) -> str:
        """The first stage that gave NaN or infinity in an utterance whose samples hold some.

        It waits for the device, which such an utterance alone has to.
        """

    def held_pages(self, state: Any) -> int:  # noqa: ARG002
        """Pages that the utterance alone holds."""
        return 0

    def lost_pages(self, state: Any) -> int:  # noqa: ARG002
        """Pages that the utterance takes to be where it was when it lost them; 0 if it did not."""
        return 0

    def wanted_pages(self, state: Any) -> int:  # noqa: ARG002
        """Pages that :meth:`advance` takes for what is ready, those that were lost included."""
        return 0

    def give_up(self, state: Any) -> None:  # noqa: B027
        """Take the pages of an utterance that is not under way: they are made anew when it advances."""

    @abstractmethod
    def close(self, state: Any) -> None:
        """Free what the utterance holds; harmless when repeated."""


@dataclass(frozen=True)
class WaveState:
    """One utterance's flow, change of speed and vocoder."""

    flow: FlowState
    speed: SpeedChange
    vocoder: VocoderState


class Token2Wav(AnyToken2Wav):
    """Exact streaming: audio once sent never changes, and any schedule gives the same audio.

    The flow and the vocoder may be on different devices: between them goes the mel, 320 bytes a frame.

    Args:
        lookahead_frames: mel frames that the vocoder waits for; None is its default.
    """

    flow: PagedFlow

    def __init__(
        self, flow: PagedFlow, vocoder: WindowedVocoder, lookahead_frames: int | None = None
    ) -> None:
        self.flow, self.vocoder, self.lookahead_frames = flow, vocoder, lookahead_frames
        # Any cut gives the same audio; at the flow's blocks it costs nothing.
        self.unit_tokens = flow.flow.config.encoder.chunk_tokens

    @property
    def fused_vocoder(self) -> bool:
        return self.vocoder.fused

    @property
    def sample_rate(self) -> int:
        return self.vocoder.config.sample_rate

    def open(self, voice: FlowPrompt | FlowPrefix, noise_seed: int | None, speed: float = 1.0) -> WaveState:
        vocoder = self.vocoder.open(noise_seed, self.lookahead_frames)
        change = SpeedChange(speed, self.vocoder.joined_mel, self.vocoder.between)
        return WaveState(self.flow.open(voice), change, vocoder)

    def push(self, state: WaveState, tokens: Sequence[int], last: bool = False) -> None:
        state.flow.push(tokens, last)

    def check(self, state: WaveState, tokens: Sequence[int]) -> None:
        state.flow.check(tokens)

    def launch(self, states: Sequence[WaveState]) -> Waveforms:
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
        mels = state.vocoder.carried.mel, state.vocoder.fresh
        return VOCODER if all(map(is_finite, mels)) else FLOW

    def held_pages(self, state: WaveState) -> int:
        return self.flow.held_pages(state.flow)

    def lost_pages(self, state: WaveState) -> int:
        return self.flow.lost_pages(state.flow)

    def wanted_pages(self, state: WaveState) -> int:
        return self.flow.wanted_pages(state.flow)

    def give_up(self, state: WaveState) -> None:
        self.flow.give_up(state.flow)

    def close(self, state: WaveState) -> None:
        self.flow.close(state.flow)


def is_finite(values: Any) -> bool:
    """Whether an array of any runtime holds neither NaN nor infinity."""
    return math.isfinite(float((values * 0).sum()))


def _after(wait: Callable[[], None], waveforms: Waveforms) -> list[Floats]:
    wait()
    return waveforms()


def cut_prompt(voice: Voice, chunk_tokens: int, first_hop: int, most: float) -> Voice:
    """The voice with its prompt cut at the start for an early first block, under a key of its own.

    The flow works in blocks counted from the prompt's start, so the first audible block waits for the
    tokens that the prompt leaves free in its last block, and for the look-ahead.

    Args:
        chunk_tokens: tokens of one block, of which at most all but one are cut.
        first_hop: new tokens of the first block, at least 1.
        most: the share of the prompt that may be cut; where it would be more or all, nothing is cut.
    """
    count = voice.speech_tokens.shape[0]
    cut = (count + first_hop) % chunk_tokens
    if not 0 < cut <= most * count or cut == count:
        return voice
    made = _CUT.setdefault(voice, {})
    if cut not in made:
        made[cut] = _without_start(voice, cut)
    return made[cut]


_CUT: WeakKeyDictionary[Voice, dict[int, Voice]] = WeakKeyDictionary()
"""The cut forms of voices, by how many tokens are cut: their numbers are checked and hashed once, and not for
each request."""


def _without_start(voice: Voice, cut: int) -> Voice:
    return dataclasses.replace(
        voice,
        key=content_hash(voice.key, cut),
        speech_tokens=voice.speech_tokens[cut:],
        prompt_mel=voice.prompt_mel[FLOW_FRAMES_PER_TOKEN * cut :],
    )


def flow_prompt(voice: Voice) -> FlowPrompt:
    """The part of a voice that the flow needs."""
    return FlowPrompt(
        tokens=np.asarray(voice.speech_tokens, np.int64),
        mel=np.asarray(voice.prompt_mel),
        speaker=np.asarray(voice.speaker_embedding),
    )
