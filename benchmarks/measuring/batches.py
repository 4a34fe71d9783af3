"""Many texts at once through the server's own schedulers: all speech tokens, then all audio."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.lm import FinishReason, Prompt, SamplingOptions
from cosyvoice_runtime.serving.lm.request import Request
from cosyvoice_runtime.serving.lm.scheduler import Scheduler
from cosyvoice_runtime.serving.token2wav import PromptTensors, WaveChunk
from cosyvoice_runtime.serving.token2wav.scheduler import WaveRouter
from cosyvoice_runtime.serving.token2wav.service import WaveOutcome
from cosyvoice_runtime.voice import Voice

Done = Callable[[], None]


@dataclass(frozen=True)
class Speech:
    """The speech tokens of a text, and why they ended."""

    tokens: list[int]
    finish_reason: FinishReason


class SpeechReader:
    """Collects the tokens of one request."""

    cancelled = False

    def __init__(self) -> None:
        self.speech: Future[Speech] = Future()
        self._tokens: list[int] = []
        self._reason = FinishReason.ERROR

    def send(self, tokens: Sequence[int], finish_reason: FinishReason | None) -> None:
        self._tokens += tokens
        self._reason = finish_reason or self._reason

    def finish(self, error: Exception | None) -> None:
        if error is None:
            self.speech.set_result(Speech(self._tokens, self._reason))
        else:
            self.speech.set_exception(error)


def speak_tokens(
    scheduler: Scheduler, prompts: Sequence[tuple[Prompt, SamplingOptions]], done: Done
) -> list[Speech]:
    """The speech tokens of every prompt, in their order; ``done`` is called as each has ended.

    Raises:
        CosyVoiceError: that of the first that failed.
    """
    readers = [SpeechReader() for _ in prompts]
    for (prompt, options), reader in zip(prompts, readers, strict=True):
        reader.speech.add_done_callback(lambda _: done())
        scheduler.submit(Request(prompt, options), reader)
    return [reader.speech.result() for reader in readers]


@dataclass(frozen=True)
class Spoken:
    """Speech tokens that are to be heard.

    Attributes:
        noise_seed: of the flow's noise and the vocoder's source.
    """

    voice: Voice
    tokens: Sequence[int]
    noise_seed: int


def speak_waves(router: WaveRouter, spoken: Sequence[Spoken], most_waiting: int, done: Done) -> list[Tensor]:
    """The waveforms, float32 ``[n]`` each, in their order. The longest are computed first, so that those
    computed together are about as long as each other.

    Args:
        most_waiting: at a time.
        done: called as each is there.

    Raises:
        CosyVoiceError: that of the first that failed.
    """
    room = threading.BoundedSemaphore(most_waiting)
    waves: dict[int, Future[WaveOutcome]] = {}

    def deliver(number: int, outcome: WaveOutcome) -> None:
        room.release()
        done()
        waves[number].set_result(outcome)

    for number in sorted(range(len(spoken)), key=lambda number: -len(spoken[number].tokens)):
        room.acquire()
        waves[number] = Future()
        chunk = _whole(f"offline {number}", spoken[number])
        router.submit(chunk, partial(deliver, number))
    return [_samples(waves[number].result()) for number in range(len(spoken))]


def _whole(name: str, spoken: Spoken) -> WaveChunk:
    """The utterance as one chunk."""
    voice = spoken.voice
    prompt = PromptTensors(voice.speech_tokens, voice.prompt_mel, voice.speaker_embedding)
    return WaveChunk(
        name,
        list(spoken.tokens),
        position=0,
        last=True,
        voice_key=prompt.key,
        noise_seed=spoken.noise_seed,
        prompt=prompt,
    )


def _samples(outcome: WaveOutcome) -> Tensor:
    if isinstance(outcome, CosyVoiceError):
        raise outcome
    if isinstance(outcome, Exception):
        raise CosyVoiceError(f"token2wav failed: {outcome}") from outcome
    return torch.from_numpy(outcome)
