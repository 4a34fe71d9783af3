"""All that requests share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosyvoice_client import AudioChunk, Reference, SpeechRequest
from cosyvoice_client.encoders import content_type, is_instant
from cosyvoice_front import audit, request_id
from cosyvoice_front.events import MEDIA_TYPE
from cosyvoice_front.keys import Keys
from cosyvoice_front.levelled import make_speech_encoder
from cosyvoice_front.lexicons import Lexicons
from cosyvoice_front.limits.limits import Limits
from cosyvoice_front.metrics import Metrics
from cosyvoice_front.pause import is_wordless, pause
from cosyvoice_front.reading import Reading
from cosyvoice_front.recording import MAX_BYTES, decode_data, read_recording
from cosyvoice_front.response import StreamedResponse
from cosyvoice_front.server_client import SpeechServer, Upstream
from cosyvoice_front.speaker_words import SpeakerWords
from cosyvoice_front.speech import SpeechBody
from cosyvoice_front.spoken import Speech, Tally, as_events, as_file, encoded, placed
from cosyvoice_front.text_fields import TextFields
from cosyvoice_front.voices import Voices
from cosyvoice_runtime.process.audit_log import AuditLog
from cosyvoice_runtime.settings import Settings

if TYPE_CHECKING:
    from cosyvoice_runtime.voice.folder_voices import NamedVoices

logger = logging.getLogger(__name__)

ENCODER_THREADS = 2
"""Threads that encode audio, one of which has time for a hundred utterances."""
HEADERS = {
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
    "X-AI-Generated": "true",
    # What has been spoken in part is not to be asked for again.
    "x-should-retry": "false",
}
"""Of every speech."""


@dataclass(frozen=True)
class Front:
    """
    Attributes:
        pool: threads that encode audio.
    """

    settings: Settings
    server: SpeechServer
    keys: Keys
    limits: Limits
    voices: Voices
    lexicons: Lexicons
    texts: Reading
    pool: Executor
    metrics: Metrics
    audit: AuditLog

    async def speak(self, body: SpeechBody, owner: str) -> StreamedResponse:
        """The answer to a request that has been read.

        Raises:
            ApiError: its voice or its reference can't be used.
        """
        speech = await self.speech(body, owner)
        pieces = speech.pieces
        if body.as_events:
            speakers = [turn.voice_name for turn in body.turns or ()]
            pieces = as_events(pieces, speech.tally, body.characters, body.speed, speakers, speech.words)
        return StreamedResponse(
            pieces,
            {
                **HEADERS,
                "X-Seed": str(speech.seed),
                "X-Audio-Sample-Rate": str(speech.rate),
                "X-Sample-Rate": str(speech.rate),  # sglang-omni's name, which clients of raw samples read
                **({"X-Reference-Note": speech.note} if speech.note else {}),
            },
            MEDIA_TYPE if body.as_events else content_type(body.response_format, speech.rate),
            self.settings.front.stalled_client_timeout_s,
            partial(_start_header, speech.tally),
        )

    async def speech(self, body: SpeechBody, owner: str) -> Speech:
        """The file that a request asks for; what is spoken of it holds a place.

        Raises:
            ApiError: its voice or its reference can't be used.
        """
        reference = await self.reference(body.ref_audio, body.ref_text or "")
        voice = None if reference else await self.voices.server_name(body.voice_name, owner)
        request, tally = body.request(voice, reference), Tally()
        request = replace(request, **await self.reading(body, request, owner))
        audit.current().speaks(request, body.response_format)
        chunks, words = self.chunks(request, owner), None
        if body.word_timestamps:
            markup = self.markup(body.text_markup)
            words = SpeakerWords(body.spoken_turns, body.speed, markup, body.word_unit)
            chunks = words.watch(chunks)
        pieces = encoded(
            chunks,
            partial(
                make_speech_encoder,
                body.response_format,
                body.rate,
                body.target_lufs,
                whole=body.is_measured_whole,
            ),
            self.pool,
            tally,
            instant=body.target_lufs is None and is_instant(body.response_format, body.rate),
        )
        if not body.as_events:
            pieces = as_file(pieces, tally)
        pieces = placed(pieces, self.place(owner, body.characters, tally))
        return Speech(pieces, tally, body.rate, request.seed, reference.note if reference else "", words)

    async def read(self, body: SpeechBody, owner: str) -> dict[str, Any]:
        """Return what would be spoken of a request's text.

        Raises:
            ApiError: its voice, its lexicon or its text can't be used, or a limit is reached.
        """
        request = body.request(await self.voices.server_name(body.voice_name, owner), None)
        request = replace(request, **await self.reading(body, request, owner))
        voices = request.text_voices or {}
        async with self.limits.place(owner, 0):
            return {"segments": await asyncio.to_thread(self.texts.segments, request, voices)}

    @asynccontextmanager
    async def place(self, owner: str, characters: int, tally: Tally) -> AsyncIterator[None]:
        """Hold a place for an utterance, which is counted with how it ends.

        Args:
            tally: what is spoken of it.

        Raises:
            ApiError: a limit is reached.
        """
        entry = audit.current()
        entry.characters = (entry.characters or 0) + characters
        with entry.noting_failure(), self.metrics.utterance(tally, owner, characters):
            entry.hears(tally)
            async with self.limits.place(owner, characters):
                yield

    async def spend(self, owner: str, characters: int) -> None:
        """Count further text of an utterance that holds a place.

        Raises:
            ApiError: the day's characters are used up.
        """
        await self.limits.spend(owner, characters)
        self.metrics.key_characters.labels(owner).inc(characters)

    def chunks(self, request: SpeechRequest, owner: str) -> AsyncGenerator[AudioChunk, None]:
        """The speech of a whole text."""
        if not request.turns and is_wordless(request.text, self.markup(request.text_markup)):
            logger.info("a text without words is a pause")
            return pause()
        return self.server.speak(request, request_id.current.get(), owner)

    def markup(self, asked: str | None) -> str:
        """Return what a text is written in: as it asks for, else as the server is taken to have it."""
        return asked or self.settings.cosyvoice2.text_markup

    async def reading(self, asked: TextFields, request: SpeechRequest, owner: str) -> dict[str, Any]:
        """The fields of a request that say how its text is read; one without a text gets it in pieces.

        Raises:
            ApiError: its dictionary is unknown, or there are too many words.
        """
        if request.turns:
            voices = await self.voices.of_turns(request.turns, owner)
        elif request.text:
            voices = await self.voices.of_text(request.text, owner)
        else:
            voices = await self.voices.of_pieces(self.markup(asked.text_markup), owner)
        voice = None if request.reference or request.turns else request.voice or ""
        words = self.lexicons.words(asked, owner, voice)
        return {"text_markup": asked.text_markup, "lexicon": words, "text_voices": voices}

    async def reference(self, ref_audio: str | None, ref_text: str) -> Reference | None:
        """The recording to speak like that a request brings; None without.

        Raises:
            ApiError: it can't be used.
        """
        if ref_audio is None:
            return None
        data = decode_data(ref_audio, MAX_BYTES, "ref_audio")
        return await asyncio.to_thread(read_recording, data, ref_text, "ref_audio")


def _start_header(tally: Tally) -> dict[str, str]:
    """The header that tells where in its text speech begins that does not begin with the first character."""
    start = tally.start_character
    return {} if start is None else {"X-Start-Character": str(start)}


@asynccontextmanager
async def open_front(
    settings: Settings, metrics: Metrics, audit_log: AuditLog, upstream: Upstream | None = None
) -> AsyncIterator[Front]:
    """Open what the front serves with, and close it in the end.

    Args:
        settings: those of the front.
        metrics: counters that its requests raise.
        audit_log: takes a line a request.
        upstream: speaks in place of the server that the settings name.

    Raises:
        InvalidInput: the file of keys can't be read.
    """
    front = settings.front
    server = (
        SpeechServer(upstream)
        if upstream
        else SpeechServer.connect(front, metrics.resume, settings.cosyvoice2.trim_silence)
    )
    pool = ThreadPoolExecutor(ENCODER_THREADS, thread_name_prefix="encoder")
    keys = Keys(front)
    limits = Limits.open(front, keys, metrics.counted_alone.inc)
    try:
        voices = await asyncio.to_thread(_open_voices, settings)
        lexicons = await asyncio.to_thread(Lexicons.of, front.lexicons)
        texts = Reading(settings.cosyvoice2)
        yield Front(settings, server, keys, limits, voices, lexicons, texts, pool, metrics, audit_log)
    finally:
        await server.close()
        await limits.close()
        pool.shutdown(wait=False, cancel_futures=True)


def _open_voices(settings: Settings) -> Voices:
    front, server = settings.front, settings.cosyvoice2
    if not front.voices_dir and server.bucket_url is None:
        return Voices(front, None)
    # Imported here because they alone need safetensors, which a front without uploads does without.
    from cosyvoice_front.uploads import Uploads
    from cosyvoice_runtime.voice.folder_voices import FolderVoices
    from cosyvoice_runtime.voice.opening import open_bucket

    kept: NamedVoices
    if server.bucket_url is None:
        kept = FolderVoices(Path(front.voices_dir), server.max_voices, server.max_voice_bytes)
    else:
        kept = open_bucket(server.bucket_url, grace_s=server.voices_grace_s)
    return Voices(front, Uploads(kept, server.max_voices, front.voices_per_key))
