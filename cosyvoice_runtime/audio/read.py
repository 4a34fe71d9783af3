"""Audio files and streams, decoded to mono float32."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import soundfile

from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.errors import InvalidInput

AudioSource = str | Path | bytes | BinaryIO


def read_audio(source: AudioSource, field: str = "audio", max_seconds: float | None = None) -> Audio:
    """Decode what libsndfile reads (wav, flac, ogg, mp3, aiff, ...) at its own rate, averaged over channels.

    Args:
        source: a path, the bytes of a file, or a seekable binary file object.
        field: how errors call this input.
        max_seconds: refuse longer audio by its header, before it is decoded.

    Raises:
        InvalidInput: the source is missing, can't be decoded, or is too long.
    """
    name = _name(source)
    if isinstance(source, str | Path) and not Path(source).is_file():
        raise InvalidInput(field, name, "no such file")
    try:
        with soundfile.SoundFile(BytesIO(source) if isinstance(source, bytes) else source) as file:
            _check_length(file, field, name, max_seconds)
            channels = file.read(dtype="float32", always_2d=True)
            rate = file.samplerate
    except (soundfile.LibsndfileError, TypeError) as error:  # TypeError: a headerless ".raw" file
        raise InvalidInput(field, name, f"expected a wav, flac, ogg, mp3 or aiff file ({error})") from error
    return Audio(channels.mean(axis=1), rate)


def _check_length(file: soundfile.SoundFile, field: str, name: str, max_seconds: float | None) -> None:
    seconds = file.frames / file.samplerate
    if max_seconds is not None and seconds > max_seconds:
        raise InvalidInput(field, name, f"its {seconds:.1f} s exceed the {max_seconds:g} s allowed")


def _name(source: AudioSource) -> str:
    if isinstance(source, bytes):
        return f"{len(source)} bytes"
    if isinstance(source, str | Path):
        return str(source)
    return str(getattr(source, "name", "stream"))
