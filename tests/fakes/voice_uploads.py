"""Voices that clients send to a front, and the speech server that analyses them."""

from __future__ import annotations

import json
import uuid
from io import BytesIO

import numpy as np
import soundfile

from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.families import COSYVOICE2
from cosyvoice_runtime.voice import Voice, VoiceStore, voice_key
from cosyvoice_runtime.voice.opening import open_bucket
from fake_upstream import FakeUpstream, tone
from raw_http import send

CHECKPOINT = "0" * 64


class AnalysingUpstream(FakeUpstream):
    """Puts the voice of each reference into a store, as the server does."""

    def __init__(self, directory) -> None:
        super().__init__()
        self.store = VoiceStore(directory, CHECKPOINT)
        self.trials = 0

    async def speak(self, request, request_id="", name=None):
        if request.reference is not None:
            self.store.put(voice_of(request.reference))
        async for chunk in super().speak(request, request_id, name):
            yield chunk
        self.trials += request.reference is not None


class SharingUpstream(FakeUpstream):
    """Leaves the voice of each reference in a bucket, as a server does that is asked to."""

    def __init__(self, url) -> None:
        super().__init__()
        self.shared = open_bucket(url)

    async def speak(self, request, request_id="", name=None):
        if "share_as" in request.tensors():
            [[token]] = request.tensors()["share_as"]
            self.shared.leave(token.decode(), voice_of(request.reference))
        async for chunk in super().speak(request, request_id, name):
            yield chunk


def voice_of(reference, read_as=COSYVOICE2.mel):
    """The voice that a server with this checkpoint makes of a reference."""
    key = voice_key(Audio(reference.samples, reference.rate), reference.text, CHECKPOINT, read_as)
    mel, tokens = np.zeros((50, 80), np.float32), np.zeros(25, np.int32)
    return Voice(key, reference.text, tokens, mel, np.ones(192, np.float32), CHECKPOINT)


def sound(seconds=2.0):
    file = BytesIO()
    soundfile.write(file, tone(seconds), 24_000, format="FLAC")
    return file.getvalue()


def upload(front, key="sk-anna", recording=None, **fields):
    """A form with the fields of a voice; None leaves one out."""
    texts = {"name": "mine", "ref_text": "A tone.", "consent": "I, Anna, agree.", **fields}
    boundary = uuid.uuid4().hex
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'.encode()
        for name, text in texts.items()
        if text is not None
    ]
    head = 'Content-Disposition: form-data; name="audio_sample"; filename="a.flac"'
    data = sound() if recording is None else recording
    parts.append(f"--{boundary}\r\n{head}\r\n\r\n".encode() + data + b"\r\n")
    body = b"".join([*parts, f"--{boundary}--\r\n".encode()])
    headers = {
        "Authorization": f"Bearer {key}",
        "Content-Type": f"multipart/form-data; boundary={boundary}",
    }
    return send(front, path="/v1/audio/voices", body=body, **headers)


def listed(front, key=None):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    voices = json.loads(send(front, "GET", "/v1/audio/voices", **headers).body)["voices"]
    return {voice["id"] for voice in voices}


def delete(front, name, key="sk-anna"):
    return send(front, "DELETE", f"/v1/audio/voices/{name}", Authorization=f"Bearer {key}")
