"""The speech LM and token2wav of this process, as the driver of an utterance uses them."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.engine.batches.chunk import MAX_CUSHION_S, PromptTensors, WaveChunk, WaveOutcome
from cosyvoice_runtime.engine.messages import silence_of
from cosyvoice_runtime.engine.utterance.utterance import TokenGroup, WaveSettings
from cosyvoice_runtime.errors import CosyVoiceError, NotFoundError, StageError, message_of, status_of
from cosyvoice_runtime.lm.generation import FinishReason, SilenceFilter
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.scheduler.job import Reader
from cosyvoice_runtime.lm.spoken import parted, told
from cosyvoice_runtime.lm.text_segment import TextPieces
from cosyvoice_runtime.process.event_loop import LoopCalls
from cosyvoice_runtime.settings import TensorrtLlmSettings, Token2WavSettings

logger = logging.getLogger(__name__)


class SpokenTokens(Protocol):
    """The speech LM, as the driver of an utterance uses it."""

    silent_tokens: frozenset[int]
    takes_spoken: bool
    """Whether it goes on from tokens that a prompt says have been spoken."""

    def speak(
        self,
        prompt: Prompt,
        sampling: SamplingOptions,
        request_id: str,
        groups: tuple[int, int],
        reader: Reader,
        in_pieces: bool,
        is_awaited: bool,
        with_rows: bool,
    ) -> None:
        """Queue a request, or raise a CosyVoiceError; the reader gets tokens and errors from another thread.

        Args:
            groups: tokens of the first group that the reader gets, and of each later one.
            in_pieces: whether the text follows by :meth:`push_text`.
            is_awaited: whether a listener waits for the first group.
            with_rows: whether the reader is told what tokens look at in the text, where that is seen.
        """

    def push_text(self, request_id: str, ids: Sequence[int], ended: bool) -> None:
        """Add text to a request, or say that it ends."""

    def stop(self, request_id: str) -> None:
        """End a request early; harmless for one that has ended."""

    def with_remedy(self, error: Exception) -> Exception:
        """The error, with a remedy and counted if it tells of NaN."""


class Waves(Protocol):
    """Token2wav, as the driver of an utterance uses it."""

    def submit(self, chunk: WaveChunk, deliver: Callable[[WaveOutcome], None]) -> None:
        """Queue a chunk, or raise a CosyVoiceError; its outcome is delivered from another thread."""

    def with_remedy(self, error: Exception) -> Exception:
        """The error, with a remedy and counted if it tells of NaN."""


class DirectStages:
    """`Stages` of one utterance over the schedulers of this process, in the event loop of ``calls``.

    Args:
        voice: asked for a voice's tensors by its key where token2wav does not know it.
        group_tokens: speech tokens of a group after the first one.
        timeout_s: longest silence of a network.
        text_timeout_s: longest silence of the speech LM while more text may come.
    """

    def __init__(
        self,
        lm: SpokenTokens,
        waves: Waves,
        calls: LoopCalls,
        voice: Callable[[str], Awaitable[PromptTensors]],
        group_tokens: int,
        timeout_s: float,
        text_timeout_s: float,
        is_heard: bool = True,
    ) -> None:
        self._lm = lm
        self._waves = waves
        self._calls = calls
        self._voice = voice
        self._tensors: dict[str, PromptTensors] = {}
        self._asking = asyncio.Lock()
        self._group_tokens = group_tokens
        self._timeout_s = timeout_s
        self._text_timeout_s = text_timeout_s
        self._is_awaited = is_heard

    async def generate(
        self,
        prompt: Prompt,
        sampling: SamplingOptions,
        utterance_id: str,
        first_tokens: int,
        pieces: TextPieces | None,
        with_rows: bool,
    ) -> AsyncGenerator[TokenGroup, None]:
        spoken, ended = parted(prompt.spoken)
        keep = SilenceFilter(self._lm.silent_tokens)
        if ended is not None:
            yield TokenGroup(keep(spoken), ended, prompt.spoken)
            return
        # Of tokens that have been spoken elsewhere nobody knows what they looked at.
        with_rows, reader = with_rows and not spoken, GroupReader(self._calls)
        groups = first_tokens, self._group_tokens
        # A listener who has heard a segment has some of it left to play.
        is_awaited, self._is_awaited = self._is_awaited, False
        try:
            in_pieces = pieces is not None
            self._lm.speak(prompt, sampling, utterance_id, groups, reader, in_pieces, is_awaited, with_rows)
        except Exception as error:
            raise as_told(TensorrtLlmSettings.name, error) from error
        timeout_s = self._timeout_s if pieces is None else self._text_timeout_s
        feeding = None if pieces is None else asyncio.create_task(self._feed(utterance_id, pieces, reader))
        try:
            if spoken:
                yield TokenGroup(keep(spoken), drawn=spoken)
            while True:
                try:
                    async with asyncio.timeout(timeout_s):
                        group = await reader.next()
                except TimeoutError:
                    raise silence_of(TensorrtLlmSettings.name, timeout_s) from None
                except Exception as error:
                    raise as_told(TensorrtLlmSettings.name, self._lm.with_remedy(error)) from error
                drawn = told(group.tokens, group.finish_reason) if self._lm.takes_spoken else ()
                yield TokenGroup.of(group.tokens, keep, group.finish_reason, drawn, group.rows)
                if group.finish_reason is not None:
                    return
        finally:
            self._lm.stop(utterance_id)
            if feeding is not None:
                feeding.cancel()

    async def wave(
        self,
        utterance_id: str,
        tokens: Sequence[int],
        position: int,
        last: bool,
        settings: WaveSettings,
        cushion_s: float,
    ) -> Floats:
        chunk = WaveChunk(
            utterance_id,
            tokens,
            position,
            last,
            settings.voice_key,
            settings.noise_seed,
            settings.speed,
            self._tensors.get(settings.voice_key),
            cushion_s=min(cushion_s, MAX_CUSHION_S),
            continues=settings.continues,
        )
        outcome = await self._outcome(chunk)
        unknown = isinstance(outcome, NotFoundError) and outcome.field == "voice_key"
        if unknown and not position:
            outcome = await self._outcome(replace(chunk, prompt=await self._tensors_of(settings.voice_key)))
        if isinstance(outcome, Exception):
            raise as_told(Token2WavSettings.name, self._waves.with_remedy(outcome)) from outcome
        return outcome

    async def prepare(self, voice_key: str) -> None:
        name = uuid.uuid4().hex
        try:
            await self.wave(name, [], 0, True, WaveSettings(voice_key, 0), MAX_CUSHION_S)
        except asyncio.CancelledError:
            self.drop(name)
            raise
        except Exception as error:
            logger.info("a voice is not ready before its segment: %s", error)

    async def _tensors_of(self, voice_key: str) -> PromptTensors:
        """A voice's tensors, which the caller is asked for once, and for one voice at a time."""
        async with self._asking:
            if voice_key not in self._tensors:
                self._tensors[voice_key] = await self._voice(voice_key)
            return self._tensors[voice_key]

    def drop(self, utterance_id: str) -> None:
        try:
            self._waves.submit(WaveChunk.forgetting(utterance_id), _ignore)
        except CosyVoiceError as error:  # The scheduler has ended, and has freed all utterances.
            logger.warning("token2wav could not be told that an utterance has ended: %s", error)

    async def _outcome(self, chunk: WaveChunk) -> WaveOutcome:
        outcome: asyncio.Future[WaveOutcome] = asyncio.get_running_loop().create_future()
        deliver = partial(self._calls.add, _settle, outcome)
        try:
            self._waves.submit(chunk, deliver)
        except Exception as error:
            return error
        try:
            async with asyncio.timeout(self._timeout_s):
                return await outcome
        except TimeoutError:
            raise silence_of(Token2WavSettings.name, self._timeout_s) from None

    async def _feed(self, utterance_id: str, pieces: TextPieces, reader: GroupReader) -> None:
        try:
            while (ids := await pieces.get()) is not None:
                self._lm.push_text(utterance_id, ids, False)
            if pieces.complete:
                self._lm.push_text(utterance_id, [], True)
        except Exception as error:
            reader.finish(error)


class GroupReader:
    """Groups of speech tokens on their way from the speech LM's thread to the event loop."""

    cancelled = False  # The owner of a reader stops the request.

    def __init__(self, calls: LoopCalls) -> None:
        self._calls = calls
        self._groups: asyncio.Queue[TokenGroup | Exception] = asyncio.Queue()

    def send(
        self, tokens: Sequence[int], finish_reason: FinishReason | None, rows: Floats | None = None
    ) -> None:
        self._calls.add(self._groups.put_nowait, TokenGroup(tokens, finish_reason, rows=rows))

    def finish(self, error: Exception | None) -> None:
        if error is not None:
            self._calls.add(self._groups.put_nowait, error)

    async def next(self) -> TokenGroup:
        """The next group; the speech LM's error is raised."""
        group = await self._groups.get()
        if isinstance(group, Exception):
            raise group
        return group


def as_told(model: str, error: Exception) -> StageError:
    """A network's error in the form in which its model answers with it."""
    return StageError(message_of(error, model), status_of(error))


def _settle(future: asyncio.Future[WaveOutcome], outcome: WaveOutcome) -> None:
    if not future.done():  # An utterance that has ended has cancelled it.
        future.set_result(outcome)


def _ignore(outcome: WaveOutcome) -> None:
    """Drop the outcome of a cancel."""
