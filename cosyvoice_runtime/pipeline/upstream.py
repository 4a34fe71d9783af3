"""Token2wav as CosyVoice2's own code streams it, for comparison with it.

Every chunk is solved again from the start of the prompt; the last one with full attention, unlike those
before it; the vocoder restarts and fades at every join.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.flow.flow import Flow, FlowPrompt
from cosyvoice_runtime.flow.stream import FlowPrefix
from cosyvoice_runtime.vocoder.hift import HiFT
from cosyvoice_runtime.vocoder.speed import change_speed
from cosyvoice_runtime.vocoder.upstream import UpstreamStream


@dataclass
class UpstreamState:
    """One utterance: all its tokens, and how many mel frames have been vocoded."""

    prompt: FlowPrompt
    vocoder: UpstreamStream
    noise: torch.Generator | None
    speed: float
    tokens: list[int] = field(default_factory=list)
    last: bool = False
    frames_done: int = 0


class UpstreamToken2Wav:
    """Utterances one after another, each chunk as the published ``CosyVoice2Model.token2wav``."""

    def __init__(self, flow: Flow, vocoder: HiFT) -> None:
        self.flow = flow
        self.vocoder = vocoder

    def open(
        self, voice: FlowPrompt | FlowPrefix, noise_seed: int | None, speed: float = 1.0
    ) -> UpstreamState:
        prompt = voice.prompt if isinstance(voice, FlowPrefix) else voice
        noise = None if noise_seed is None else torch.Generator().manual_seed(noise_seed)
        return UpstreamState(prompt, UpstreamStream(self.vocoder), noise, speed)

    def push(self, state: UpstreamState, tokens: Sequence[int], last: bool = False) -> None:
        self.flow.check_tokens(tokens, len(state.prompt.tokens) + len(state.tokens))
        state.tokens += tokens
        state.last = last

    def advance(self, states: Sequence[UpstreamState]) -> list[Tensor]:
        return [self._advance(state) for state in states]

    def close(self, state: UpstreamState) -> None:
        """Nothing is held beyond the state itself."""

    def _advance(self, state: UpstreamState) -> Tensor:
        if not state.tokens:
            return torch.zeros(0)
        [mel] = self.flow.generate(
            [state.prompt], [state.tokens], streaming=not state.last, finalize=state.last
        )
        new = self._at_speed(mel[None, :, state.frames_done :], state)
        state.frames_done = mel.shape[1]
        return state.vocoder.next(new, state.last, self._noise(state, new.shape[2]))[0]

    def _at_speed(self, mel: Tensor, state: UpstreamState) -> Tensor:
        if state.speed != 1.0 and (state.frames_done or not state.last):
            raise InvalidInput("speed", state.speed, "CosyVoice2's own streaming speaks at speed 1 only")
        return change_speed(mel, state.speed)

    def _noise(self, state: UpstreamState, frames: int) -> Tensor | None:
        if state.noise is None:
            return None
        samples = self.vocoder.config.hop * (frames + state.vocoder.cached_frames)
        harmonics = self.vocoder.config.num_harmonics + 1
        return torch.randn(1, samples, harmonics, generator=state.noise).to(self.flow.device)
