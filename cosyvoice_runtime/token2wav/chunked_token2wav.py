"""Speech tokens to waveform in CosyVoice-300M's own schedule of overlapping chunks.

Nothing in these networks goes on from where it was: a chunk of 120 tokens is computed as a whole, with its
voice's prompt, the next one speaks the last 20 of them again, and mel and waveform are faded from one into
the other. So the schedule is part of the sound, and there is no other one; an utterance that is spoken
offline is one chunk.

Facts of the schedule are those of the published code (FunAudioLLM/CosyVoice ``ace7c47``). Every utterance
has a generator of its own here, where that draws from a global one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyvoice_runtime.audio.audio import check_speed
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.errors import FLOW, VOCODER, InvalidInput
from cosyvoice_runtime.flow.solvers import EULER
from cosyvoice_runtime.flow.torch.regulated_flow import Overlap, RegulatedFlow
from cosyvoice_runtime.flow.voice_flow import FlowPrefix, FlowPrompt, VoiceFlow
from cosyvoice_runtime.gpu.transfer import Fetch
from cosyvoice_runtime.token2wav.token2wav import MORE_THAN_ANY, AnyToken2Wav, is_finite
from cosyvoice_runtime.vocoder.torch.hift import HiFT
from cosyvoice_runtime.vocoder.torch.sampled_phase import RandomStart
from cosyvoice_runtime.vocoder.windowed_vocoder import Waveforms

CACHED_FRAMES = 20
"""Mel frames that the vocoder reads again before each chunk, so that its start is heard in no seam."""


class SeededDraws:
    """Draws for an utterance's chunks, from a generator of its own on the CPU."""

    def __init__(self, vocoder: HiFT, seed: int) -> None:
        self._config = vocoder.config
        self._generator = torch.Generator().manual_seed(seed)

    def flow(self, frames: int, bins: int) -> Tensor:
        """Start of the solution, float32 ``[frames, bins]``."""
        return torch.randn(bins, frames, generator=self._generator).T

    def vocoder(self, frames: int) -> RandomStart:
        """Start of the source."""
        return RandomStart.draw(self._config, frames, self._generator)

    def mark(self) -> Tensor:
        """Where the generator is, for :meth:`rewind`."""
        return self._generator.get_state()

    def rewind(self, mark: Tensor) -> None:
        """Be again where it was."""
        self._generator.set_state(mark)


@dataclass(frozen=True, eq=False)
class VocoderOverlap:
    """State that a chunk leaves for the next one's vocoder.

    Attributes:
        mel: ``[bins, CACHED_FRAMES]``, the last frames that were vocoded.
        source, wave: ``[hop * CACHED_FRAMES]`` of those frames; the samples have not been sent yet.
    """

    mel: Tensor
    source: Tensor
    wave: Tensor


@dataclass
class ChunkedState:
    """One utterance.

    Attributes:
        received: tokens that have come, the prompt's among them.
        waiting: tokens that have come and are not behind the last chunk, those it overlaps with among them.
        last: no more tokens will come.
        overlap: of the flow's last chunk; None before the first.
        held_mel: ``[bins, overlap frames]`` of the chunk before, faded into the next one.
        held: of the vocoder's last chunk.
        mel: ``[bins, n]``, the flow's newest.
    """

    prompt: FlowPrompt
    draws: SeededDraws
    speed: float
    received: int
    waiting: list[int] = field(default_factory=list)
    last: bool = False
    overlap: Overlap | None = None
    held_mel: Tensor | None = None
    held: VocoderOverlap | None = None
    mel: Tensor | None = None


class WholeFlow(VoiceFlow):
    """A flow that keeps nothing, neither of voices nor of utterances."""

    def prefix(self, prompt: FlowPrompt) -> FlowPrefix:
        return FlowPrefix(self.flow.check_prompt(prompt), pages=[], tails=None, tokens_done=0)

    def close(self, held: Any) -> None:
        """Do nothing: nothing is held."""


class Precision(NamedTuple):
    """Types of the networks."""

    flow: torch.dtype
    vocoder: torch.dtype


class ChunkedToken2Wav(AnyToken2Wav):
    """Flow and vocoder of one checkpoint; an utterance's last push is one chunk, so no push is cut."""

    unit_tokens = MORE_THAN_ANY

    def __init__(self, flow: RegulatedFlow, vocoder: HiFT) -> None:
        self.regulated = flow
        self.vocoder = vocoder
        self.flow = WholeFlow(flow)
        config = flow.config
        self._hop_tokens = config.encoder.chunk_tokens
        self._chunk_tokens = config.encoder.chunk_tokens + config.lookahead_tokens
        self._hop = vocoder.config.hop
        self._mel_fade = fade(flow.overlap_frames, vocoder.device)
        self._wave_fade = fade(self._hop * CACHED_FRAMES, vocoder.device)

    @classmethod
    def from_checkpoint(
        cls,
        layout: Layout,
        config: ModelConfig,
        device: torch.device | str,
        precision: Precision,
        ode_steps: int | None = None,
        solver: str = EULER,
    ) -> ChunkedToken2Wav:
        """Load the networks; a CheckpointError for a bad file or another family's checkpoint."""
        tensors = load_tensors(layout, "flow", config)
        flow = RegulatedFlow.from_tensors(
            config.regulated_flow, tensors, device, precision.flow, ode_steps, solver
        )
        tensors = load_tensors(layout, "hift", config)
        return cls(flow, HiFT.from_tensors(config.vocoder, tensors, device, precision.vocoder))

    @property
    def fused_vocoder(self) -> bool:
        return self.vocoder.fused

    @property
    def sample_rate(self) -> int:
        return self.vocoder.config.sample_rate

    def open(
        self,
        voice: FlowPrompt | FlowPrefix,
        noise_seed: int,
        speed: float = 1.0,
        draws: SeededDraws | None = None,
    ) -> ChunkedState:
        """Start an utterance; ``draws`` take the place of those of the seed."""
        check_speed(speed)
        prompt = voice.prompt if isinstance(voice, FlowPrefix) else self.regulated.check_prompt(voice)
        return ChunkedState(prompt, draws or SeededDraws(self.vocoder, noise_seed), speed, len(prompt.tokens))

    def push(self, state: ChunkedState, tokens: Sequence[int], last: bool = False) -> None:
        self.check(state, tokens)
        state.waiting.extend(tokens)
        state.received += len(tokens)
        state.last = last

    def check(self, state: ChunkedState, tokens: Sequence[int]) -> None:
        if state.last:
            raise InvalidInput("speech_tokens", "further tokens", "the utterance has ended")
        self.regulated.check_tokens(tokens, state.received)

    @torch.inference_mode()
    def launch(self, states: Sequence[ChunkedState]) -> Waveforms:
        on_their_way = [Fetch(self._advance(state)) for state in states]
        return lambda: [wave.array() for wave in on_their_way]

    def _advance(self, state: ChunkedState) -> Tensor:
        waves = []
        while not self._whole(state) and len(state.waiting) >= self._chunk_tokens:
            waves.append(self._chunk(state, state.waiting[: self._chunk_tokens], last=False))
            del state.waiting[: self._hop_tokens]
        if state.last and state.waiting:
            waves.append(self._chunk(state, state.waiting, last=True))
            state.waiting = []
        return torch.cat(waves) if waves else torch.zeros(0, device=self.vocoder.device)

    def _whole(self, state: ChunkedState) -> bool:
        """Whether it is one chunk: its whole length is known at once, or its chunks could not be faded.

        The first is how the published code speaks offline.
        """
        return state.speed != 1.0 or (state.last and state.overlap is None)

    def _chunk(self, state: ChunkedState, tokens: Sequence[int], *, last: bool) -> Tensor:
        noise = state.draws.flow(
            self.regulated.frames_of(state.prompt, len(tokens)), self.regulated.config.mel_bins
        )
        self.flow.calls += 1
        mel, overlap = self.regulated.generate(state.prompt, tokens, noise, state.overlap)
        state.overlap, state.mel = overlap, mel
        return self._vocode(state, self._joined(state, mel.float().to(self.vocoder.device), last), last)

    def _joined(self, state: ChunkedState, mel: Tensor, last: bool) -> Tensor:
        """The mel to vocode: faded in, behind what is cached, and without its end unless it is the last."""
        if state.held_mel is not None:
            mel = faded(state.held_mel, mel, self._mel_fade)
        if state.held is not None:
            mel = torch.cat([state.held.mel, mel], dim=1)
        if last:
            return mel
        state.held_mel = mel[:, -self.regulated.overlap_frames :].clone()
        return mel[:, : -self.regulated.overlap_frames]

    def _vocode(self, state: ChunkedState, mel: Tensor, last: bool) -> Tensor:
        if state.speed != 1.0:
            frames = max(int(mel.shape[1] / state.speed), 1)
            mel = F.interpolate(mel[None], size=frames, mode="linear")[0]
        start = state.draws.vocoder(mel.shape[1]).to(self.vocoder.device)
        wave, source = self._wave(mel, start, None if state.held is None else state.held.source)
        if state.held is not None:
            wave = faded(state.held.wave, wave, self._wave_fade)
        if last:
            return wave
        kept = self._hop * CACHED_FRAMES
        state.held = VocoderOverlap(
            mel[:, -CACHED_FRAMES:].clone(), source[-kept:].clone(), wave[-kept:].clone()
        )
        return wave[:-kept]

    def _wave(self, mel: Tensor, start: RandomStart, cached: Tensor | None) -> tuple[Tensor, Tensor]:
        """Samples and their source, of mel ``[bins, T]``; the source of the first frames may be known."""
        f0 = self.vocoder.f0(mel[None])
        source = self.vocoder.source(f0, start.noise, start.carry())
        if cached is not None:
            source[:, : len(cached)] = cached
        return self.vocoder.decode(mel[None], source)[0], source[0]

    def broken_stage(self, state: ChunkedState) -> str:
        return VOCODER if state.mel is not None and is_finite(state.mel) else FLOW

    @contextmanager
    def all_or_nothing(self, states: Sequence[ChunkedState]) -> Iterator[None]:
        marks = [
            (dict(vars(state)) | {"waiting": list(state.waiting)}, state.draws.mark()) for state in states
        ]
        try:
            yield
        except BaseException:
            for state, (attributes, drawn) in zip(states, marks, strict=True):
                vars(state).update(attributes)
                state.draws.rewind(drawn)
            raise

    def close(self, state: ChunkedState) -> None:
        """Forget what the utterance holds."""
        state.overlap = state.held_mel = state.held = state.mel = None


def fade(length: int, device: torch.device) -> Tensor:
    """Weights ``[2, length]`` of what comes and of what goes: the halves of a Hamming window of twice the
    length. They sum to 1.08 and not to 1, as published."""
    return (
        torch.hamming_window(2 * length, periodic=False, dtype=torch.float64).float().view(2, -1).to(device)
    )


def faded(before: Tensor, signal: Tensor, weights: Tensor) -> Tensor:
    """The signal ``[..., n]`` whose start is faded from ``before [..., length]``."""
    length = weights.shape[1]
    start = signal[..., :length] * weights[0] + before[..., :length] * weights[1]
    return torch.cat([start, signal[..., length:]], dim=-1)
