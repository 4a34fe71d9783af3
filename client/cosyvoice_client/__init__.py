"""Speech from a Triton server with the models ``cosyvoice2`` and ``cosyvoice2_offline``.

    from cosyvoice_client import SpeechClient, SpeechRequest, recorded

    for chunk in recorded("hello.wav", SpeechClient("localhost:8001").speak(SpeechRequest("Hello there."))):
        print(f"{chunk.seconds:.2f} s are in the file")

``cosyvoice_client.http_client.HttpSpeechClient`` speaks whole utterances over HTTP; it alone needs
``tritonclient[http]``.

The gRPC clients are imported when first named, so that the rest works without ``tritonclient[grpc]``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cosyvoice_client.chunk import SAMPLE_RATE, AudioChunk
from cosyvoice_client.errors import (
    ClientError,
    InvalidArgumentError,
    RefusedError,
    ServerTimeoutError,
    UnavailableError,
)
from cosyvoice_client.reference import Reference, read_reference
from cosyvoice_client.request import SpeechRequest
from cosyvoice_client.timeline import Timeline
from cosyvoice_client.writer import audio_writer, recorded

if TYPE_CHECKING:
    from cosyvoice_client.async_client import AsyncSpeechClient
    from cosyvoice_client.grpc_client import SpeechClient
    from cosyvoice_client.text_speech import TextSpeech

__all__ = [
    "SAMPLE_RATE",
    "AsyncSpeechClient",
    "AudioChunk",
    "ClientError",
    "InvalidArgumentError",
    "Reference",
    "RefusedError",
    "ServerTimeoutError",
    "SpeechClient",
    "SpeechRequest",
    "TextSpeech",
    "Timeline",
    "UnavailableError",
    "audio_writer",
    "read_reference",
    "recorded",
]

GRPC_CLIENTS = {
    "AsyncSpeechClient": "async_client",
    "SpeechClient": "grpc_client",
    "TextSpeech": "text_speech",
}
"""Modules of the classes that need tritonclient."""


def __getattr__(name: str) -> Any:
    if name not in GRPC_CLIENTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{GRPC_CLIENTS[name]}"), name)
