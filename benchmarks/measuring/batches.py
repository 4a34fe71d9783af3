"""Many texts at once through the server's own schedulers: all tokens, then all audio, or both at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

import numpy as np
import torch
from torch import Tensor

from cosyvoice_runtime.engine.batches import PromptTensors, WaveChunk
from cosyvoice_runtime.engine.batches.chunk import WaveOutcome
from cosyvoice_runtime.engine.batches.router import WaveRouter
from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.lm import FinishReason, Prompt, SamplingOptions
from cosyvoice_runtime.lm.scheduler.request import Request
from cosyvoice_runtime.lm.scheduler.scheduler import Scheduler
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

    def send(self, tokens: Sequence[int], finish_reason: FinishReason | None, *_: object) -> None:
        self._tokens += tokens
        self._reason = finish_reason or self._reason

    def finish(self, error: Exception | None) -> None:
        if error is None:
            self.speech.set_result(Speech(self._tokens, self._reason))
        else:
            self.speech.set_exception(error)


Prompts = Sequence[tuple[Prompt, SamplingOptions]]


def speak_tokens(scheduler: Scheduler, prompts: Prompts, done: Done) -> list[Speech]:
    """The speech tokens of every prompt, in their order; ``done`` is called as each has ended. The longest
    texts are spoken first: one that begins when the others end has the batch for itself.

    Raises:
        CosyVoiceError: that of the first that failed.
    """
    order = sorted(range(len(prompts)), key=lambda number: -len(prompts[number][0].text))
    readers = _submitted(scheduler, prompts, order, lambda _: done())
    return [reader.speech.result() for reader in readers]


def _submitted(
    scheduler: Scheduler, prompts: Prompts, order: Iterable[int], ended: Callable[[int], None]
) -> list[SpeechReader]:
    """Readers of what is asked for here; ``ended`` is told the number of each that has all tokens."""
    readers = [SpeechReader() for _ in prompts]
    for number in order:
        readers[number].speech.add_done_callback(_told(ended, number))
        scheduler.submit(Request(*prompts[number]), readers[number])
    return readers


def _told(ended: Callable[[int], None], number: int) -> Callable[[object], None]:
    return lambda _: ended(number)


@dataclass(frozen=True)
class Spoken:
    """Speech tokens that are to be heard.

    Attributes:
        noise_seed: of the flow's noise and the vocoder's source.
    """

    voice: Voice
    tokens: Sequence[int]
    noise_seed: int


class WaveCalls:
    """Chunks on their way through token2wav.

    Args:
        most_waiting: at a time.
        done: called as each is there.
    """

    def __init__(self, router: WaveRouter, most_waiting: int, done: Done) -> None:
        self._router = router
        self._room = threading.BoundedSemaphore(most_waiting)
        self._done = done
        self._waves: dict[int, Future[WaveOutcome]] = {}

    def submit(self, number: int, spoken: Spoken) -> None:
        """Wait for room, then ask for a waveform; to be called by one thread."""
        self._room.acquire()
        self._waves[number] = Future()
        self._router.submit(_whole(f"offline {number}", spoken), partial(self._deliver, number))

    def results(self) -> list[Tensor]:
        """Waveforms, float32 ``[n]`` each, by number.

        Raises:
            CosyVoiceError: that of the first that failed.
        """
        return [_samples(self._waves[number].result()) for number in range(len(self._waves))]

    def _deliver(self, number: int, outcome: WaveOutcome) -> None:
        self._room.release()
        self._done()
        self._waves[number].set_result(outcome)


def speak_waves(calls: WaveCalls, spoken: Sequence[Spoken]) -> list[Tensor]:
    """The waveforms, float32 ``[n]`` each, in their order. The longest are computed first, so that those
    computed together are about as long as each other.

    Raises:
        CosyVoiceError: that of the first that failed.
    """
    for number in sorted(range(len(spoken)), key=lambda number: -len(spoken[number].tokens)):
        calls.submit(number, spoken[number])
    return calls.results()


def speak_together(
    scheduler: Scheduler,
    prompts: Prompts,
    calls: WaveCalls,
    spoken: Callable[[int, Speech], Spoken],
    done: Done,
) -> tuple[list[Speech], list[Tensor]]:
    """Tokens and waveforms of every prompt, in their order: token2wav computes what has all its tokens while
    the speech LM speaks the others. Texts are spoken as they come, short ones among long ones, so that
    token2wav soon has something to do.

    Args:
        spoken: of a prompt's number and its tokens.
        done: called as each prompt has all its tokens.

    Raises:
        CosyVoiceError: that of the first that failed.
    """
    ended: SimpleQueue[int] = SimpleQueue()
    readers = _submitted(scheduler, prompts, range(len(prompts)), ended.put)
    for _ in prompts:
        number = ended.get()
        done()
        calls.submit(number, spoken(number, readers[number].speech.result()))
    return [reader.speech.result() for reader in readers], calls.results()


def _whole(name: str, spoken: Spoken) -> WaveChunk:
    """The utterance as one chunk."""
    voice = spoken.voice
    prompt = PromptTensors(
        np.asarray(voice.speech_tokens),
        np.asarray(voice.prompt_mel),
        np.asarray(voice.speaker_embedding),
    )
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
