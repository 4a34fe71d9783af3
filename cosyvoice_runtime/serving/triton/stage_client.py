"""The other models of the repository as an utterance's stages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import numpy as np

from cosyvoice_runtime.arrays import Floats, Ids
from cosyvoice_runtime.checkpoint.merged_vocabulary import MergedVocabulary
from cosyvoice_runtime.errors import CosyVoiceError, StageError, StageLostError, StageSilentError
from cosyvoice_runtime.lm.generation import FinishReason
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.silence import SilenceFilter
from cosyvoice_runtime.pipeline.stages import TokenGroup, WaveSettings
from cosyvoice_runtime.pipeline.text_segment import TextPieces
from cosyvoice_runtime.serving.triton.chunk_ahead import ChunkAhead
from cosyvoice_runtime.serving.triton.schema import (
    AUDIO_TOKENIZER,
    SPEAKER_EMBEDDING,
    TENSORRT_LLM,
    TOKEN2WAV,
    Tensors,
)
from cosyvoice_runtime.serving.triton.stage_calls import StageCalls
from cosyvoice_runtime.serving.triton.stage_inputs import (
    further_text,
    open_sampling_inputs,
    reference_inputs,
    sampling_inputs,
    voice_inputs,
    wave_inputs,
)
from cosyvoice_runtime.serving.triton.stage_watch import answer_of
from cosyvoice_runtime.voice.voice import Voice

logger = logging.getLogger(__name__)

CLEANUP_TIMEOUT_S = 5.0
"""Longest wait for a model that is told to stop or to forget; nobody waits for it."""
FEW_AHEAD = 12
"""Streams of the speech LM up to which first chunks go ahead: of 64 clients of an H100 who came at once, more
heard a pause after theirs (benchmarks/results/README.md)."""
STOP_AGAIN_S = 0.5
"""Time after which the speech LM is told again: the first stop may have come before the request itself."""


class StageClient:
    """Calls the models. Made and used in one event loop.

    Args:
        vocabulary: of ``tensorrt_llm``'s ids.
        return_s: longest wait for a model that is loaded again.
        text_timeout_s: longest silence of the speech LM while more text may come.
        silent_tokens: speech codes of which only the first few of a run are spoken.
        group_tokens: speech tokens between two moments at which an utterance's next chunk may go out.
    """

    def __init__(
        self,
        calls: StageCalls,
        vocabulary: MergedVocabulary,
        return_s: float = 30.0,
        text_timeout_s: float = 60.0,
        silent_tokens: Collection[int] = (),
        group_tokens: int = 1,
    ) -> None:
        self._silent_tokens = silent_tokens
        self._group_tokens = group_tokens
        self._calls = calls
        self._text_timeout_s = text_timeout_s
        self._vocabulary = vocabulary
        self._return_s = return_s
        self._waves: dict[str, asyncio.Future[Tensors]] = {}
        self._ahead: dict[str, ChunkAhead] = {}
        self._dropping: set[str] = set()
        self._streams = 0
        self._cleanups: set[asyncio.Task[None]] = set()

    async def loaded(self) -> None:
        """Wait until the models are there that every utterance needs."""
        await self._calls.loaded([TENSORRT_LLM.name, TOKEN2WAV.name])

    def require(self) -> None:
        """
        Raises:
            StageLostError: a model that every utterance needs has ended and is not back.
        """
        for schema in (TENSORRT_LLM, TOKEN2WAV):
            self._calls.stages.require(schema.name)

    async def lost(self) -> None:
        """Wait until a model that every utterance needs ends.

        Raises:
            StageLostError: it has ended; nothing else ends this.
        """
        names = [TENSORRT_LLM.name, TOKEN2WAV.name]
        lives = [await self._calls.stages.life(name) for name in names]
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ends = [asyncio.ensure_future(life.outlast(never)) for life in lives if life is not None]
        try:
            done, _ = await asyncio.wait([never, *ends], return_when=asyncio.FIRST_COMPLETED)
            await done.pop()
        finally:
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)

    async def back(self) -> None:
        """Wait until no model is away.

        Raises:
            StageLostError: one did not come back in time.
        """
        await self._calls.stages.back(self._return_s)

    async def speech_tokens(self, samples: Floats) -> Ids:
        """16 kHz samples, float32 ``[n]``, to speech tokens, int32 ``[m]``."""
        outputs = await self._calls.call(AUDIO_TOKENIZER, reference_inputs(samples))
        return outputs["prompt_speech_tokens"].reshape(-1).astype(np.int32)

    async def speaker_embedding(self, samples: Floats) -> Floats:
        """16 kHz samples, float32 ``[n]``, to a speaker embedding, float32 ``[D]``."""
        outputs = await self._calls.call(SPEAKER_EMBEDDING, reference_inputs(samples))
        return outputs["prompt_spk_embedding"].reshape(-1).astype(np.float32)

    def generate(
        self,
        prompt: Prompt,
        sampling: SamplingOptions,
        utterance_id: str,
        first_tokens: int,
        ahead: WaveSettings | None = None,
    ) -> AsyncGenerator[TokenGroup, None]:
        inputs = self._prompt(prompt) | sampling_inputs(sampling, len(prompt.text))
        return self._groups(inputs, utterance_id, first_tokens, ahead)

    async def generate_from_pieces(
        self,
        prompt: Prompt,
        pieces: TextPieces,
        sampling: SamplingOptions,
        utterance_id: str,
        first_tokens: int,
        ahead: WaveSettings | None = None,
    ) -> AsyncGenerator[TokenGroup, None]:
        inputs = self._prompt(prompt) | open_sampling_inputs(sampling)
        # All in one stream, where nothing overtakes the request that it belongs to.
        stream = self._groups(
            inputs, utterance_id, first_tokens, ahead, self._text_timeout_s, further_text(pieces)
        )
        try:
            async with aclosing(stream) as groups:
                async for group in groups:
                    yield group
                    if group.finish_reason is not None:
                        return  # further text may still be refused, which concerns nobody
        finally:
            pieces.leave()

    def _chunk_ahead(
        self, utterance_id: str, settings: WaveSettings | None, first_tokens: int, most: int
    ) -> ChunkAhead | None:
        """The first chunk, if it may go from the speech LM straight to token2wav.

        Args:
            most: tokens of the stream; one that may end before the first chunk's are there is asked for
                whole by whoever counts them.
        """
        if settings is None or first_tokens > most or self._streams >= FEW_AHEAD:
            return None
        if not self._calls.side_by_side(TENSORRT_LLM, TOKEN2WAV):
            return None
        return ChunkAhead(wave_inputs(utterance_id, 0, settings, 0.0), utterance_id)

    async def _groups(
        self,
        inputs: dict[str, Any],
        utterance_id: str,
        first_tokens: int,
        ahead: WaveSettings | None,
        timeout_s: float | None = None,
        further: AsyncIterator[Mapping[str, Any]] | None = None,
    ) -> AsyncGenerator[TokenGroup, None]:
        """What a stream of the speech LM brings; it is told to stop if this is closed before its end.

        A chunk that is asked for in it is kept until :meth:`wave` comes for it, or :meth:`drop`.
        """
        most = inputs["request_output_len"]
        chunk = self._chunk_ahead(utterance_id, ahead, first_tokens, most)
        if chunk is not None:
            self._ahead[utterance_id] = chunk
        self._streams += 1  # in the same moment: a crowd that comes at once is one
        responses = self._calls.stream(
            TENSORRT_LLM,
            inputs | self._groups_of(first_tokens, most),
            utterance_id,
            timeout_s,
            further,
            None if chunk is None else chunk.request,
        )
        begun = ended = told_why = asks_on = False
        keep = SilenceFilter(self._silent_tokens)
        try:
            while True:
                # Shielded: the speech LM ends an unfinished stream when it is told to stop.
                pending = asyncio.ensure_future(anext(responses, None))
                outputs = await asyncio.shield(pending)
                if outputs is None:
                    ended = True
                    if chunk is not None:  # it was answered before, or never will be
                        chunk.give_up(StageError("token2wav: no answer", "INTERNAL"))
                    return
                group = self._tokens(outputs)
                told_why = group.finish_reason is not None
                asks_on = group.finish_reason is not None and group.finish_reason.is_heard
                begun = True
                yield TokenGroup(keep(group.tokens), group.finish_reason)
        except StageError as error:
            ended = True  # an answer, so nothing is left to be stopped
            if chunk is not None and chunk.give_up(error) and begun:  # token2wav may have it
                self._forget(utterance_id, chunk)
            raise
        except StageSilentError as error:
            # Once it has said why it ended, token2wav is silent, which has a time of its own.
            if chunk is not None and not told_why:
                chunk.give_up(error)
            raise
        finally:
            self._streams -= 1
            if not ended:
                self._in_background(self._end(utterance_id, pending, responses, chunk, stop=not told_why))
            unasked = None if asks_on else self._ahead.pop(utterance_id, None)
            if unasked is not None and not ended:
                self._forget(utterance_id, unasked)

    async def wave(
        self,
        utterance_id: str,
        tokens: Sequence[int],
        position: int,
        last: bool,
        settings: WaveSettings,
        cushion_s: float,
    ) -> Floats:
        inputs = wave_inputs(utterance_id, position, settings, cushion_s)
        inputs |= {"speech_tokens": tokens, "last": last}
        ahead = self._ahead.pop(utterance_id, None)
        self._waves[utterance_id] = answer = answer_of(self._wave(inputs, settings.voice, ahead))
        answer.add_done_callback(lambda _: self._waves.pop(utterance_id, None))
        outputs = await asyncio.shield(answer)
        return outputs["waveform"].reshape(-1)

    def drop(self, utterance_id: str) -> None:
        self._forget(utterance_id, self._ahead.pop(utterance_id, None))

    async def close(self) -> None:
        """Wait for what is told to stop or to forget, then hang up."""
        if self._cleanups:
            await asyncio.wait(self._cleanups)
        await self._calls.close()

    def _prompt(self, prompt: Prompt) -> dict[str, Any]:
        vocabulary = self._vocabulary
        speech = [vocabulary.speech_offset + token for token in prompt.prompt_speech]
        ids = [vocabulary.sos_id, *prompt.all_text, vocabulary.task_id, *speech]
        inputs: dict[str, Any] = {"input_ids": ids, "input_lengths": len(ids)}
        return inputs | ({"prompt_spk_embedding": prompt.speaker} if prompt.speaker else {})

    def _groups_of(self, first_tokens: int, most: int) -> dict[str, Any]:
        return {"first_tokens": min(first_tokens, most), "group_tokens": min(self._group_tokens, most)}

    def _tokens(self, outputs: Tensors) -> TokenGroup:
        tokens = outputs["output_ids"].reshape(-1) - self._vocabulary.speech_offset
        reason = outputs["finish_reason"].reshape(-1)[0].decode()
        return TokenGroup(tokens.tolist(), FinishReason(reason) if reason else None)

    async def _wave(self, inputs: dict[str, Any], voice: Voice, ahead: ChunkAhead | None) -> Tensors:
        try:
            if ahead is None:
                return await self._calls.call(TOKEN2WAV, inputs)
            return await self._calls.within(TOKEN2WAV, ahead.answer)
        except StageError as error:
            if error.status != "NOT_FOUND" or inputs["position"]:
                raise
            return await self._calls.call(TOKEN2WAV, inputs | voice_inputs(voice))

    async def _end(
        self,
        utterance_id: str,
        pending: asyncio.Future[Tensors | None],
        responses: AsyncGenerator[Tensors, None],
        chunk: ChunkAhead | None,
        stop: bool,
    ) -> None:
        """Read a stream to its end, which comes soon when the speech LM was told to; cancel it otherwise.

        Args:
            pending: what reads its next response already.
            chunk: that is asked for in it.
        """
        awaits_chunk = chunk is not None and not (stop or chunk.answer.done())
        failure: CosyVoiceError = StageError("the speech LM's stream was left", "UNAVAILABLE")
        try:
            async with asyncio.timeout(None if awaits_chunk else CLEANUP_TIMEOUT_S):
                if stop:
                    await self._stop_until(pending, utterance_id)
                while await pending is not None:
                    pending = asyncio.ensure_future(anext(responses, None))
        except StageError as error:
            failure = error
            raise
        except StageSilentError:
            failure = self._calls.silence(TOKEN2WAV)  # the speech LM has said all
            raise
        finally:
            pending.cancel()
            await asyncio.gather(pending, return_exceptions=True)
            await responses.aclose()
            if chunk is not None:
                chunk.give_up(failure)

    async def _stop_until(self, pending: asyncio.Future[Any], utterance_id: str) -> None:
        await self._stop(utterance_id)
        while not (await asyncio.wait([pending], timeout=STOP_AGAIN_S))[0]:
            await self._stop(utterance_id)

    async def _stop(self, utterance_id: str) -> None:
        async for _ in self._calls.stream(TENSORRT_LLM, {"stop": True}, utterance_id, CLEANUP_TIMEOUT_S):
            pass

    def _forget(self, utterance_id: str, ahead: ChunkAhead | None) -> None:
        """Have token2wav forget an utterance, unless it is being told already."""
        if utterance_id not in self._dropping:
            self._dropping.add(utterance_id)
            self._in_background(self._drop(utterance_id, ahead))

    async def _drop(self, utterance_id: str, ahead: ChunkAhead | None) -> None:
        wave = self._waves.get(utterance_id) if ahead is None else ahead.answer
        try:
            await self._cancel(utterance_id)
            if wave is None:
                return
            await asyncio.wait([wave])
            given_up = ahead is not None and ahead.given_up
            if given_up or wave.exception() is None:  # it may have come later than the cancel
                await self._cancel(utterance_id)
        finally:
            self._dropping.discard(utterance_id)

    async def _cancel(self, utterance_id: str) -> None:
        inputs = {"utterance_id": utterance_id, "cancel": True}
        await self._calls.call(TOKEN2WAV, inputs, CLEANUP_TIMEOUT_S)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what no listener need wait for. A failure is logged; the models' own timeouts do the rest."""
        task = asyncio.get_running_loop().create_task(_logged(work))
        self._cleanups.add(task)
        task.add_done_callback(self._cleanups.discard)


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except StageLostError:
        return  # with all that it kept
    except (CosyVoiceError, TimeoutError) as error:
        logger.warning("a model keeps an ended utterance until it is idle: %s", error)
    except Exception:
        logger.exception("an ended utterance could not be cleaned up")
