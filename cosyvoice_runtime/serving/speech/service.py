"""The speech service: requests of many clients in one event loop, spoken by the engine."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, aclosing
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from cosyvoice_runtime.audio.silence import TrimSilence
from cosyvoice_runtime.checkpoint.alignment_heads import AlignmentHeads
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.layout import ALIGNMENT_HEADS
from cosyvoice_runtime.engine.messages import Order
from cosyvoice_runtime.engine.utterance.arriving_words import ArrivingWords
from cosyvoice_runtime.engine.utterance.feed import SegmentFeed
from cosyvoice_runtime.engine.utterance.followed import FollowedSpeech
from cosyvoice_runtime.engine.utterance.hop import HopPolicy
from cosyvoice_runtime.engine.utterance.incoming_text import IncomingText
from cosyvoice_runtime.engine.utterance.layout import SegmentLayout, TurnsLayout, laid_out
from cosyvoice_runtime.engine.utterance.request import AudioChunk, SpeechRequest, Utterance
from cosyvoice_runtime.engine.utterance.streamed_text import TextFeeder, speak_arriving, within_ceiling
from cosyvoice_runtime.engine.utterance.turn import characters_of
from cosyvoice_runtime.engine.utterance.utterance import Playback
from cosyvoice_runtime.engine.utterance.verdict import Verify
from cosyvoice_runtime.engine.utterance.verification import Checks, way_to_verify
from cosyvoice_runtime.engine.utterance.verifier import Judge, within
from cosyvoice_runtime.engine.utterance.word_clock import VoiceTiming, WordClock
from cosyvoice_runtime.errors import ClientGoneError, InvalidInput, StageLostError
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.metrics import trace
from cosyvoice_runtime.serving.speech.admission import Admission, AdmittedUtterance
from cosyvoice_runtime.serving.speech.engine_client import EngineCall, EngineClient
from cosyvoice_runtime.serving.speech.open_utterances import OpenUtterances, TextEvent, TextMessage
from cosyvoice_runtime.serving.speech.speech_inputs import ChunkListener, SpeechInputs
from cosyvoice_runtime.serving.speech.speech_metrics import RequestTimer, SpeechMetrics
from cosyvoice_runtime.serving.speech.voice_book import VoiceBook
from cosyvoice_runtime.serving.speech.watermark import MakeWatermark, marked
from cosyvoice_runtime.serving.triton.request import Inputs
from cosyvoice_runtime.settings.cosyvoice2 import PARAGRAPH_PAUSE_S
from cosyvoice_runtime.text import TextFrontEnd, TextTokenizer
from cosyvoice_runtime.text.validate import MOST_AT_ONCE
from cosyvoice_runtime.voice import Voice

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Script(NamedTuple):
    """A request, the feed of its segments, and what tells and checks their words."""

    request: SpeechRequest
    layout: SegmentLayout | TurnsLayout
    feed: SegmentFeed
    followed: FollowedSpeech


LOOK_FOR_CLIENTS_S = 0.1
"""The time between two checks whether clients are still there, of which Triton sends no event."""
MEASURED_TEXT = "How fast this machine speaks says how many may speak at a time, so that nobody waits."
MEASURED_S = 4
"""The longest utterance for measuring the speed."""


class SpeechService:
    """Answers requests; made and used in one event loop.

    What computes for longer (text, voices, tensors of a request) runs in threads of the loop's pool.

    Args:
        sampling: sampling of speech tokens for requests without options.
        max_characters: most characters of a text.
        speech_tokens: how many tokens the speech LM knows.
        blocks: the speech LM's configuration if arriving text is fed between its speech; None to speak such a
            text clause by clause.
        text_timeout_s: longest time without text and speech.
        watermark: starts the watermark of an utterance; None adds none.
        trim_silence, paragraph_pause_s, verify: of requests that don't say them; `verify` is that of answers
            as a whole alone.
        judge: of the sound of answers as a whole that are verified.
        timeout_s: longest time without an answer of a network.
        heads: those of the speech LM that follow the text; None where words are timed by estimate.
    """

    def __init__(
        self,
        engine: EngineClient,
        voices: VoiceBook,
        front_end: TextFrontEnd,
        tokenizer: TextTokenizer,
        hop: HopPolicy,
        sample_rate: int,
        metrics: SpeechMetrics,
        admission: Admission,
        *,
        sampling: SamplingOptions,
        max_characters: int,
        speech_tokens: int,
        blocks: SpeechLMConfig | None = None,
        text_timeout_s: float = 30.0,
        watermark: MakeWatermark | None = None,
        trim_silence: TrimSilence = "off",
        paragraph_pause_s: float = PARAGRAPH_PAUSE_S,
        timeout_s: float = 30.0,
        verify: Verify = "off",
        judge: Judge | None = None,
        heads: AlignmentHeads | None = None,
    ) -> None:
        self._engine = engine
        self._voices = voices
        self._front_end, self._tokenizer = front_end, tokenizer
        self._hop = hop
        self._sample_rate = sample_rate
        self._metrics, self._admission = metrics, admission
        self._sampling = sampling
        self._max_characters, self._speech_tokens = max_characters, speech_tokens
        self._blocks = blocks
        self._timing = VoiceTiming(heads, tokenizer.spans, 1 / hop.token_rate, sample_rate)
        self._timeout_s, self._text_timeout_s, self._verify = timeout_s, text_timeout_s, verify
        self._open = OpenUtterances(max_characters, text_timeout_s, metrics.now)
        self._watermark, self._judge = watermark, judge
        self._trim_silence, self._paragraph_pause_s = trim_silence, paragraph_pause_s
        self._listeners: dict[asyncio.Task[None], ChunkListener] = {}
        self._watch: asyncio.Task[None] | None = None
        self._looker = ThreadPoolExecutor(1, thread_name_prefix="clients that left")

    @property
    def token_rate(self) -> int:
        """The speech tokens per second at speed 1."""
        return self._hop.token_rate

    async def answer(
        self, inputs: Inputs, listener: ChunkListener, metrics: SpeechMetrics | None = None
    ) -> None:
        """Speak a request; the listener's answer ends exactly once on every path.

        A message for an utterance that is being spoken is delivered before anything is waited for, so that
        messages arrive in order.
        """
        metrics = metrics or self._metrics
        error: BaseException | None = None
        try:
            message = TextMessage.read(inputs)
            if message is not None:
                _require_streaming(message, listener)
            if message is None or message.event is TextEvent.OPEN:
                await self._speak_admitted(inputs, listener, metrics, message)
            else:
                self._open.deliver(message)
        except Exception as failure:
            error = failure
        metrics.admits(self._admission.capacity)
        listener.finish(error)

    async def _speak_admitted(
        self, inputs: Inputs, listener: ChunkListener, metrics: SpeechMetrics, opening: TextMessage | None
    ) -> None:
        timer = RequestTimer(metrics, Playback(metrics.now), text_whole=opening is None)
        headers = None if inputs.is_probe else inputs.trace_headers
        with timer, trace.utterance("cosyvoice2", headers=headers):
            trace.note("cosyvoice2 has the request")
            with self._admitted(inputs) as admitted:
                trace.note("it is admitted")
                self._engine.require()
                if opening is None:
                    await self._while_there(self._speak(inputs, listener, timer, admitted), listener)
                else:
                    with self._open.open(opening) as text:
                        await self._while_there(self._speak_arriving(inputs, text, listener, timer), listener)
            # The capacity is returned first, because the client may send its next request at once.
            listener.complete()

    def leave(self, call: str) -> None:
        """Stop speaking to a client that has left, which the listener itself may not notice."""
        for task, listener in self._listeners.items():
            if listener.call == call:
                task.cancel()

    def _admitted(self, inputs: Inputs) -> AbstractContextManager[AdmittedUtterance]:
        if inputs.is_probe:
            return self._admission.probe()
        return self._admission.admit(inputs.client, inputs.asks_elsewhere)

    async def speed(self, at_once: int = 1) -> float:
        """Measure the seconds of speech per second with so many utterances at once, and no others."""
        voice = await asyncio.to_thread(self._voices.any)
        most = MEASURED_S * self._hop.token_rate
        most = min(most, self._sampling.ceiling or most)
        sampling = dataclasses.replace(self._sampling, max_tokens=most)
        text = self._front_end.family.instructed(MEASURED_TEXT)
        request = SpeechRequest(text, voice, seed=0, sampling=sampling, streaming=True)
        await self._seconds_of(request)  # The first one takes longer, because it fills caches.
        start_s = self._metrics.now()
        audio_s = sum(await asyncio.gather(*(self._seconds_of(request) for _ in range(at_once))))
        return audio_s / max(self._metrics.now() - start_s, 1e-6)

    async def _seconds_of(self, request: SpeechRequest) -> float:
        script = await asyncio.to_thread(self._script, request)
        async with aclosing(self._chunks(script)) as chunks:
            return sum([chunk.seconds async for chunk in chunks])

    async def _speak(
        self, inputs: Inputs, listener: ChunkListener, timer: RequestTimer, admitted: AdmittedUtterance
    ) -> None:
        """Speak, and start once more if the engine ended before anything was heard."""
        try:
            await self._speak_once(inputs, listener, timer, admitted)
        except StageLostError as error:
            if not listener.begin_again():
                raise
            logger.warning("an utterance waits, to start anew: %s", error)
            await self._engine.back()
            await self._speak_once(inputs, listener, timer, admitted)

    async def _speak_once(
        self, inputs: Inputs, listener: ChunkListener, timer: RequestTimer, admitted: AdmittedUtterance
    ) -> None:
        judge = None if listener.streams or inputs.is_probe else self._judge
        judge = judge and within(judge, admitted.aside)
        script = await self._asked(inputs, listener.streams, partial(self._script, judge=judge))
        if script.request.start_character:
            listener.start_character = script.layout.start_character
        kept_s = spoken_s = 0.0
        async with aclosing(self._chunks(script)) as chunks:
            async for chunk in chunks:
                if not chunk.only_counts:
                    listener.send(chunk)
                    trace.note("cosyvoice2 has sent audio")
                # The chunk has been sent: counting must not hold it up.
                timer.made(chunk)
                unheard_s = 0.0 if chunk.verification is None else chunk.verification.unheard_s
                admitted.spoke(chunk.spoken_seconds + sum(chunk.trimmed_s) + unheard_s)
                if chunk.only_counts:
                    continue
                kept_s, spoken_s = kept_s + chunk.seconds, spoken_s + chunk.spoken_seconds
                if listener.streams:
                    admitted.played(late=timer.sent(kept_s, spoken_s))
                    kept_s = spoken_s = 0.0
        timer.sent(kept_s, spoken_s)  # A client that gets one answer receives it now.

    async def _speak_arriving(
        self, inputs: Inputs, text: IncomingText, listener: ChunkListener, timer: RequestTimer
    ) -> None:
        """Speak text as it arrives; the end of the engine ends it, even while it waits for text."""

        def begun(asked: SpeechRequest, words: bool) -> tuple[EngineCall, TextFeeder, FollowedSpeech]:
            checks = Checks.of(self._timing, self._way_to_verify(asked), goes_on=True)
            blocks = self._blocks if checks is None else None  # What is fed between speech can't be checked.
            asked = dataclasses.replace(asked, sampling=within_ceiling(asked.sampling))
            layout = SegmentLayout(asked, self._front_end, self._tokenizer, self._hop.flow_voice)
            # Text that is fed between speech is never there as a whole while it is spoken.
            timing = self._timing if blocks is None else self._timing._replace(heads=None)
            clock = WordClock(asked.speed, timing) if words else None
            followed = FollowedSpeech(clock, checks, asked.speed, timing.spans)
            markup = asked.text_markup or self._front_end.markup
            arriving = ArrivingWords(followed, markup) if followed.is_asked_for else None
            call = self._call(asked, layout, checks, followed.is_asked_for and blocks is None)
            feeder = TextFeeder(text, layout, self._hop, call, blocks, timer.text_came, arriving)
            return call, feeder, followed

        call, feeder, followed = await self._asked(inputs, listener.streams, begun)
        # The utterance is open.
        listener.send(AudioChunk(np.zeros(0, np.float32), self._sample_rate, 0))
        spoken = speak_arriving(feeder, followed.told(call.chunks()))
        async with aclosing(self._marked(spoken)) as chunks:
            async for chunk in chunks:
                if not chunk.only_counts:
                    listener.send(chunk)
                    trace.note("cosyvoice2 has sent audio")
                timer.made(chunk)
                if not chunk.only_counts:
                    timer.sent(chunk.seconds, chunk.spoken_seconds)

    def _script(self, request: SpeechRequest, words: bool = False, judge: Judge | None = None) -> Script:
        checks = Checks.of(self._timing, self._way_to_verify(request, judge), judge)
        parts = self._front_end, self._tokenizer, self._hop.flow_voice
        layout = laid_out(request, *parts, with_words=words or checks is not None)
        segments = layout.segments()
        clock = WordClock(request.speed, self._timing, layout.first_segment) if words else None
        followed = FollowedSpeech(clock, checks, request.speed, self._timing.spans)
        characters = None if request.turns else len(request.text)
        feed = SegmentFeed(segments, characters, len(request.spoken), followed)
        return Script(request, layout, feed, followed)

    def _way_to_verify(self, request: SpeechRequest, judge: Judge | None = None) -> Verify:
        no_heads = f"the checkpoint has no {ALIGNMENT_HEADS}"
        return way_to_verify(request, self._verify, lambda: "" if judge or self._timing.heads else no_heads)

    def _chunks(self, script: Script) -> AsyncGenerator[AudioChunk, None]:
        followed = script.followed
        call = self._call(script.request, script.layout, followed.checks, followed.is_asked_for)
        script.feed.begin(call)
        return self._marked(script.feed.chunks(followed.told(call.chunks())))

    def _call(
        self,
        request: SpeechRequest,
        layout: SegmentLayout | TurnsLayout,
        checks: Checks | None,
        follows: bool,
    ) -> EngineCall:
        with_rows = follows and self._timing.heads is not None
        order = Order(
            Utterance.of(request, layout.sound, layout.first_segment, with_rows),
            self._hop,
            self._sample_rate,
            timeout_s=self._timeout_s,
            text_timeout_s=self._timeout_s + self._text_timeout_s,
            trace=trace.request(),
            checks=checks and checks.of_draws,
        )
        return self._engine.call(order, layout.voices, request.spoken)

    def _marked(self, spoken: AsyncGenerator[AudioChunk, None]) -> AsyncGenerator[AudioChunk, None]:
        return spoken if self._watermark is None else marked(spoken, self._watermark(self._sample_rate))

    async def _asked(self, inputs: Inputs, streams: bool, use: Callable[[SpeechRequest, bool], T]) -> T:
        """The parsed request as ``use`` has it, made in a thread, after its reference has been analysed.

        Args:
            use: takes the request, and whether its words are to be told.
        """

        def request(asked: SpeechInputs, voice: Voice) -> SpeechRequest:
            return asked.request(voice, streams, self._front_end.family, self._voices.changed_to)

        def read() -> tuple[SpeechInputs, T | None]:
            asked = SpeechInputs.read(
                inputs,
                self._sampling,
                self._max_characters if streams else min(self._max_characters, MOST_AT_ONCE),
                self._speech_tokens,
                self._trim_silence,
                self._paragraph_pause_s,
            )
            trace.tell(characters=len(asked.text) + characters_of(asked.turns) or None)
            if asked.reference is not None:
                return asked, None
            # Turns have voices of their own, so that the request's is not heard.
            voice = self._voices.kept(asked.voice, any_will_do=inputs.is_probe or bool(asked.turns))
            trace.tell(voice=asked.voice)  # Not before it is found: anything may be asked for as a voice.
            trace.note("its voice is there")
            return asked, use(request(asked, voice), asked.words)

        asked, made = await asyncio.to_thread(read)
        if asked.reference is not None:
            voice = await self._voices.of(asked.reference, asked.reference_text or "", asked.share_as)
            trace.note("its voice is there")
            made = await asyncio.to_thread(lambda: use(request(asked, voice), asked.words))
        trace.note("text and voice are ready")
        return cast(T, made)

    async def _while_there(self, work: Coroutine[Any, Any, None], listener: ChunkListener) -> None:
        """Run the work; cancel it, and raise a ClientGoneError, when the client leaves."""
        task = asyncio.create_task(work)
        self._listeners[task] = listener
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._look_for_clients())
        try:
            await task
        except asyncio.CancelledError:
            raise ClientGoneError from None
        finally:
            del self._listeners[task]

    async def _look_for_clients(self) -> None:
        loop = asyncio.get_running_loop()
        # Not at once: the first look would be beside the reading of a request that has just come.
        while await asyncio.sleep(LOOK_FOR_CLIENTS_S, True) and self._listeners:
            for task in await loop.run_in_executor(self._looker, _gone, dict(self._listeners)):
                task.cancel()


def _require_streaming(message: TextMessage, listener: ChunkListener) -> None:
    if not listener.streams:
        limit = "a model that answers once takes the text with its request"
        raise InvalidInput("utterance_id", message.utterance_id, limit)


def _gone(listeners: Mapping[asyncio.Task[None], ChunkListener]) -> list[asyncio.Task[None]]:
    """The clients that have left. Each check calls the server, so it runs outside the event loop."""
    return [task for task, listener in listeners.items() if _has_left(listener)]


def _has_left(listener: ChunkListener) -> bool:
    """Whether a client has left; where the server can't say, it is asked again soon."""
    try:
        return listener.gone
    except Exception:
        logger.warning("the server can't say whether a client is there", exc_info=True)
        return False
