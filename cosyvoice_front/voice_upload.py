"""A voice that a client sends: read, checked, analysed by the server, and kept under its name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from cosyvoice_client import Reference, SpeechRequest
from cosyvoice_front import audit, request_id
from cosyvoice_front.errors import ApiError, invalid, overloaded, too_large
from cosyvoice_front.recording import MAX_BYTES, read_recording
from cosyvoice_front.speech import for_its_sound
from cosyvoice_front.spoken import Tally
from cosyvoice_front.upload import new_upload
from cosyvoice_runtime.families import COSYVOICE3

if TYPE_CHECKING:
    from cosyvoice_front.front import Front
    from cosyvoice_front.uploads import Uploads

MIN_SECONDS = 1.0
MAX_WORDS = 4096
"""Characters of a consent or a transcript."""
FORM = "multipart/form-data"
NO = ("", "0", "false", "no", "off")
TRIAL = COSYVOICE3.instructed("Yes.")
"""Spoken with a new voice, so that the server analyses it. CosyVoice3 needs the instruction."""


@dataclass(frozen=True)
class VoiceForm:
    """The fields of the form."""

    name: str
    recording: bytes
    ref_text: str
    consent: str
    public: bool

    @classmethod
    async def read(cls, request: Request, most_bytes: int) -> VoiceForm:
        """Read the form; an ApiError names the field at fault."""
        async with _form(request) as form:
            return cls(
                _text(form, "name"),
                await _recording(form, most_bytes),
                _text(form, "ref_text"),
                _consent(form),
                _text(form, "public").lower() not in NO,
            )


async def add_voice(front: Front, owner: str, request: Request) -> dict[str, Any]:
    """Keep the voice that a request brings.

    Raises:
        ApiError: naming the field at fault.
    """
    uploads = _uploads(front)
    token = uploads.trial_token()
    if token is None and not front.settings.cosyvoice2.reference_days:
        message = "This server takes no voices: it keeps no references (cosyvoice2.reference_days is 0)."
        raise invalid(None, message, "no_uploads")
    form = await VoiceForm.read(request, MAX_BYTES)
    audit.current().voice = form.name
    if front.voices.is_taken(form.name):
        raise invalid("name", f"name: {form.name!r} is taken.", "voice_exists")
    record = new_upload(
        uploads.name(form.name),
        owner,
        form.recording,
        ref_text=form.ref_text,
        consent=form.consent,
        public=form.public,
    )
    kept = await asyncio.to_thread(uploads.sent_before, record)
    if kept is None:
        await asyncio.to_thread(uploads.check_free, record.name, owner)
    reference = await asyncio.to_thread(
        read_recording, form.recording, form.ref_text, "audio_sample", MIN_SECONDS
    )
    if kept is None:
        async with front.place(owner, len(TRIAL), Tally()):
            await _analyse(front, owner, reference, token)
        kept = await asyncio.to_thread(uploads.add, record, form.recording, reference, token)
    if kept is None:
        message = "The server has not kept the voice, or not until it got its name; send it again."
        raise overloaded(message)
    return kept.shown() | ({"note": reference.note} if reference.note else {})


async def remove_voice(front: Front, owner: str, name: str) -> dict[str, Any]:
    """Forget a voice.

    Raises:
        ApiError: the key has sent none of this name.
    """
    audit.current().voice = name
    await asyncio.to_thread(_uploads(front).remove, name, owner)
    return {"id": name, "object": "audio.voice.deleted", "deleted": True}


@dataclass(frozen=True)
class Trial(SpeechRequest):
    """
    Attributes:
        share_as: token by which the server leaves the voice where fronts find it.
    """

    share_as: str | None = None

    def tensors(self) -> dict[str, npt.NDArray[Any]]:
        told = {} if self.share_as is None else {"share_as": np.array([[self.share_as.encode()]], np.object_)}
        return super().tensors() | told


async def _analyse(front: Front, owner: str, reference: Reference, token: str | None) -> None:
    """Have the server make the voice, and check what only it can: silence and clipping.

    The trial is spoken to its end, so that it holds no place when the voice is used next.
    """
    wordless = for_its_sound(reference, None)
    request = Trial(TRIAL, reference, cross_lingual=wordless, seed=0, share_as=token)
    try:
        async with aclosing(front.server.speak(request, request_id.current.get(), owner)) as chunks:
            async for _ in chunks:
                pass
    except ApiError as error:
        if error.param == "ref_audio":
            raise invalid("audio_sample", f"audio_sample{str(error).removeprefix(error.param)}") from None
        raise


def _uploads(front: Front) -> Uploads:
    if front.voices.uploads is None:
        message = "This server takes no voices: front.voices_dir and cosyvoice2.voices_url are not set."
        raise invalid(None, message, "no_uploads")
    return front.voices.uploads


@asynccontextmanager
async def _form(request: Request) -> AsyncIterator[FormData]:
    """The form that a request brings, in memory: the body is limited, and the disk may be read-only.

    Raises:
        ApiError: the body is no form that holds files.
    """
    if not request.headers.get("content-type", "").lower().startswith(FORM):
        raise invalid("audio_sample", f"audio_sample: expected a sound file, in a body of type {FORM}.")
    parser = MultiPartParser(request.headers, request.stream(), max_files=1, max_fields=8)
    parser.spool_max_size = request.app.state.front.settings.front.max_request_mib << 20
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise invalid(None, f"The body is no form: {error.message}.") from None
    try:
        yield form
    finally:
        await form.close()


def _text(form: FormData, field: str) -> str:
    value = form.get(field, "")
    if not isinstance(value, str) or len(value) > MAX_WORDS:
        raise invalid(field, f"{field}: expected a text of at most {MAX_WORDS} characters.")
    return value.strip()


def _consent(form: FormData) -> str:
    """The speaker's words; ``consent_id`` is OpenAI's name for a consent that lies elsewhere."""
    consent = _text(form, "consent") or _text(form, "consent_id")
    if consent.lower() in NO:
        message = "consent: say in which words the speaker agreed to the use of this voice."
        raise invalid("consent", message, "consent_missing")
    return consent


async def _recording(form: FormData, most_bytes: int) -> bytes:
    file = form.get("audio_sample")
    if not isinstance(file, UploadFile):
        raise invalid("audio_sample", "audio_sample: expected a sound file.")
    data = await file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise too_large(f"{most_bytes >> 20} MiB for audio_sample", "audio_sample")
    return data
