"""Streaming as CosyVoice2's published code does it, to compare its parts with the recorded outputs.

Every chunk is solved again from the start of the prompt; the last one with full attention, unlike those
before it. The vocoder cuts context short, restarts the phase at each chunk, accumulates it in float32 and
fades over the joins, 8 % too loud.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from math import pi

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.voice_flow import FlowPrompt
from cosyvoice_runtime.vocoder.torch import HiFT
from vocoder_calls import change_speed

CACHED_FRAMES = 8
"""Frames of mel, source and speech kept between chunks (``mel_cache_len`` of the published code)."""
FIRST_HOP_TOKENS = 25
MAX_HOP_TOKENS = 100


class ReferenceVocoder:
    """One utterance: the last 8 frames of each chunk are vocoded again with the next and cross-faded."""

    def __init__(self, hift: HiFT) -> None:
        self.hift = hift
        window = fade_window(CACHED_FRAMES * hift.config.hop).to(hift.device)
        self._fade_in, self._fade_out = window.chunk(2)
        self._mel = torch.zeros(1, hift.config.mel_bins, 0, device=hift.device)
        self._source = self._speech = torch.zeros(1, 0, device=hift.device)

    @property
    def cached_frames(self) -> int:
        """Frames that the next chunk's vocoding repeats."""
        return self._mel.shape[2]

    def next(self, mel: Tensor, is_last: bool, noise: Tensor | None = None) -> Tensor:
        """Vocode the next chunk.

        Args:
            mel: [1, bins, n], at least 8 frames unless it is the last chunk.
            is_last: emit everything.
            noise: [1, hop * (n + cached frames), harmonics] standard normal as published, where 8
                frames are cached on every chunk but the first; None for a source without noise.

        Returns:
            [1, samples] float32.
        """
        mel = torch.cat([self._mel, mel], dim=-1)
        wave, source = vocode(self.hift, mel, noise, self._source)
        wave = self._cross_fade(wave)
        samples = len(self._fade_in)
        self._mel, self._source = mel[..., -CACHED_FRAMES:], source[:, -samples:]
        self._speech = wave[:, -samples:]
        return wave if is_last else wave[:, :-samples]

    def _cross_fade(self, wave: Tensor) -> Tensor:
        samples = self._speech.shape[1]
        if samples == 0:
            return wave
        faded = wave[:, :samples] * self._fade_in + self._speech * self._fade_out
        return torch.cat([faded.float(), wave[:, samples:]], dim=1)


@torch.no_grad()
def fade_window(samples: int) -> Tensor:
    """Weights of the new speech, then of the old: float64 [2 * samples]. Their sum at a seam is 1.08."""
    return torch.hamming_window(2 * samples, periodic=False, dtype=torch.float64)


def vocode(
    hift: HiFT, mel: Tensor, noise: Tensor | None = None, cached_source: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Waveform and source, [1, hop * T] each.

    Args:
        mel: [1, bins, T].
        noise: [1, hop * T, harmonics] standard normal, or None.
        cached_source: [1, samples] to overwrite the first samples of the source, at most ``hop * T``.
    """
    source = single_precision_source(hift, hift.f0(mel), noise)
    if cached_source is not None:
        source = torch.cat([cached_source, source[:, cached_source.shape[1] :]], dim=1)
    return hift.decode(mel, source), source


def single_precision_source(hift: HiFT, f0: Tensor, noise: Tensor | None = None) -> Tensor:
    """Source [1, hop * T] of F0 [1, T] with the phase's float32 rounding, which grows with its length."""
    config, source = hift.config, hift.m_source
    harmonics = torch.arange(1, source.num_sines + 1, device=f0.device)
    turns = (f0.float()[..., None] * harmonics / config.sample_rate) % 1
    phase = (turns.cumsum(1) * (2 * pi) * config.hop).transpose(1, 2)
    phase = F.interpolate(phase, scale_factor=float(config.hop), mode="linear").transpose(1, 2)
    sines = torch.sin(phase).unflatten(1, (f0.shape[1], config.hop))
    return source.merge(sines, f0, None if noise is None else source.merge_noise(noise))


class ReferenceToken2Wav:
    """One utterance, each chunk as the published ``CosyVoice2Model.token2wav``.

    Args:
        noise: of the vocoder's source, as it was drawn for each chunk; without any left, none.
    """

    def __init__(self, flow: Flow, hift: HiFT, prompt: FlowPrompt, noise: Sequence[Tensor] = ()) -> None:
        self._flow, self._prompt = flow, prompt
        self._vocoder = ReferenceVocoder(hift)
        self._noise = iter(noise)
        self._frames_done = 0

    def next(self, tokens: Sequence[int], is_last: bool, speed: float = 1.0) -> Tensor:
        """Samples that all tokens so far add, look-ahead included: float32 [n]. Only a whole utterance, which
        is its own last chunk, may be spoken at another speed."""
        [mel] = self._flow.generate([self._prompt], [tokens], streaming=not is_last, finalize=is_last)
        new = change_speed(mel[None, :, self._frames_done :], speed)
        self._frames_done = mel.shape[1]
        return self._vocoder.next(new, is_last, next(self._noise, None))[0]


def chunk_ends(prompt_tokens: int) -> Iterator[int]:
    """Tokens of an utterance up to the end of each chunk: 25 and the prompt's padding, then 50, 100, ..."""
    end = FIRST_HOP_TOKENS + -prompt_tokens % FIRST_HOP_TOKENS
    for index in count(1):
        yield end
        end += min(MAX_HOP_TOKENS, FIRST_HOP_TOKENS * 2**index)


def streamed(
    flow: Flow, hift: HiFT, prompt: FlowPrompt, tokens: Sequence[int], noise: Sequence[Tensor] = ()
) -> list[Tensor]:
    """The chunks of an utterance."""
    token2wav, waves = ReferenceToken2Wav(flow, hift, prompt, noise), []
    for end in chunk_ends(len(prompt.tokens)):
        known = end + flow.config.lookahead_tokens
        if known > len(tokens):
            break
        waves.append(token2wav.next(tokens[:known], is_last=False))
    return [*waves, token2wav.next(tokens, is_last=True)]


def whole(
    flow: Flow,
    hift: HiFT,
    prompt: FlowPrompt,
    tokens: Sequence[int],
    noise: Sequence[Tensor] = (),
    speed: float = 1.0,
) -> Tensor:
    """The utterance in one chunk."""
    return ReferenceToken2Wav(flow, hift, prompt, noise).next(tokens, is_last=True, speed=speed)
