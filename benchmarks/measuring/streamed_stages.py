"""The server's schedulers in one process, for utterances that are streamed as in the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.generation import FinishReason
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.pipeline.stages import TokenGroup, WaveSettings
from cosyvoice_runtime.serving.lm.engine import prepare_engine
from cosyvoice_runtime.serving.lm.request import Request
from cosyvoice_runtime.serving.lm.scheduler import Scheduler
from cosyvoice_runtime.serving.token2wav.chunk import PromptTensors, WaveChunk
from cosyvoice_runtime.serving.token2wav.load import load_wave_service
from cosyvoice_runtime.serving.token2wav.router import WaveRouter
from cosyvoice_runtime.serving.token2wav.service import WaveOutcome
from cosyvoice_runtime.settings import Settings

QUEUE = 64


async def spoken(
    token2wav: WaveRouter,
    utterance_id: str,
    tokens: Sequence[int],
    position: int,
    last: bool,
    settings: WaveSettings,
    cushion_s: float,
) -> Floats:
    """What token2wav makes of a chunk, as `Stages.wave` gives it."""
    voice, loop = settings.voice, asyncio.get_running_loop()
    prompt = PromptTensors(voice.speech_tokens, voice.prompt_mel, voice.speaker_embedding)
    chunk = WaveChunk(
        utterance_id, list(tokens), position, last, prompt.key, settings.noise_seed,
        prompt=prompt, cushion_s=cushion_s, continues=settings.continues,
    )  # fmt: skip
    found: asyncio.Future[WaveOutcome] = loop.create_future()

    def deliver(outcome: WaveOutcome) -> None:
        loop.call_soon_threadsafe(found.set_result, outcome)

    token2wav.submit(chunk, deliver)
    outcome = await found
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


class StreamedStages:
    """Speech LM and token2wav, each with a thread of its own, called from an event loop.

    Args:
        settings: without ``auto``.
    """

    def __init__(self, settings: Settings) -> None:
        lm = settings.tensorrt_llm
        self._lm = Scheduler(prepare_engine(lm), QUEUE, lm.idle_timeout_s, lambda _: None)
        self._token2wav = load_wave_service(settings.token2wav, Metrics(settings.token2wav.name))

    async def generate(
        self,
        prompt: Prompt,
        sampling: SamplingOptions,
        utterance_id: str,
        first_tokens: int,
        ahead: WaveSettings | None = None,  # noqa: ARG002
    ) -> AsyncGenerator[TokenGroup, None]:
        reader = _Reader()
        request = Request(prompt, sampling, streaming=True, first_tokens=first_tokens, id=utterance_id)
        self._lm.submit(request, reader)
        while True:
            group = await reader.groups.get()
            if isinstance(group, Exception):
                raise group
            yield group
            if group.finish_reason is not None:
                return

    async def wave(
        self,
        utterance_id: str,
        tokens: Sequence[int],
        position: int,
        last: bool,
        settings: WaveSettings,
        cushion_s: float,
    ) -> Floats:
        return await spoken(self._token2wav, utterance_id, tokens, position, last, settings, cushion_s)

    def drop(self, utterance_id: str) -> None:
        self._token2wav.submit(WaveChunk.forgetting(utterance_id), lambda _: None)

    def close(self) -> None:
        self._lm.close()
        self._token2wav.close()


class _Reader:
    """Hands the tokens of a request to the event loop that it is made on."""

    cancelled = False

    def __init__(self) -> None:
        self.groups: asyncio.Queue[TokenGroup | Exception] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()

    def send(self, tokens: Sequence[int], finish_reason: FinishReason | None) -> None:
        self._put(TokenGroup(tokens, finish_reason))

    def finish(self, error: Exception | None) -> None:
        if error is not None:
            self._put(error)

    def _put(self, group: TokenGroup | Exception) -> None:
        self._loop.call_soon_threadsafe(self.groups.put_nowait, group)
