"""The server's schedulers in one process: speech LM and token2wav, with its settings, engines and batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from cosyvoice_runtime.engine.batches.load import open_router, shared_gpu
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.engine import prepare_engine
from cosyvoice_runtime.lm.scheduler.scheduler import Scheduler
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.settings import Settings
from cosyvoice_runtime.voice import Voice
from measuring.batches import Speech, Spoken, WaveCalls, speak_together, speak_tokens, speak_waves

UNLIMITED = 10**9
QUEUED_BATCHES = 2
"""Of token2wav: the next one waits while one is computed."""


@dataclass(frozen=True)
class TextSegment:
    """A stretch of an utterance's text, and what it takes to speak it."""

    utterance: str
    voice: Voice
    prompt: Prompt
    sampling: SamplingOptions
    noise_seed: int


class ScheduledStages:
    """Schedulers as in the server, each with the machine's threads while it works.

    Args:
        settings: without ``auto``.
        together: both will work at once, on one GPU as they share it in the server; else each has it whole.
    """

    def __init__(self, settings: Settings, together: bool) -> None:
        self._settings = settings
        lm, wave = settings.tensorrt_llm, settings.token2wav
        gpu = shared_gpu(lm, wave) if together else None
        self._lm = Scheduler(prepare_engine(lm, gpu), UNLIMITED, lambda _: None, shared=gpu)
        try:
            self._token2wav = open_router(wave, Metrics(wave.name), gpu)
        except BaseException:
            self._lm.close()
            raise

    def speak(self, segments: Sequence[TextSegment], done: Callable[[], None]) -> list[Speech]:
        """Speech tokens of all."""
        return speak_tokens(self._lm, _prompts(segments), done)

    def voice(
        self, segments: Sequence[TextSegment], speech: Sequence[Speech], done: Callable[[], None]
    ) -> list[Tensor]:
        """Waveforms of all tokens."""
        return speak_waves(self._calls(done), list(map(_spoken, segments, speech)))

    def speak_and_voice(
        self, segments: Sequence[TextSegment], spoken: Callable[[], None], done: Callable[[], None]
    ) -> tuple[list[Speech], list[Tensor]]:
        """Both at once."""
        return speak_together(
            self._lm,
            _prompts(segments),
            self._calls(done),
            lambda number, speech: _spoken(segments[number], speech),
            spoken,
        )

    def _calls(self, done: Callable[[], None]) -> WaveCalls:
        settings = self._settings.token2wav
        waiting = min(QUEUED_BATCHES * settings.max_batch * len(settings.devices), settings.max_queue_size)
        return WaveCalls(self._token2wav, waiting, done)

    def close(self) -> None:
        self._lm.close()
        self._token2wav.close()


def _prompts(segments: Sequence[TextSegment]) -> list[tuple[Prompt, SamplingOptions]]:
    return [(segment.prompt, segment.sampling) for segment in segments]


def _spoken(segment: TextSegment, speech: Speech) -> Spoken:
    return Spoken(segment.voice, speech.tokens, segment.noise_seed)
