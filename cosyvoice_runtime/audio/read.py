"""Audio files and streams, decoded to mono float32."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np
import soundfile

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.errors import InvalidInput

AudioSource = str | Path | bytes | BinaryIO
BLOCK_FRAMES = 1 << 14


class StraightFile(soundfile.SoundFile):
    """An audio file that is read from its start to its end: libsndfile can't seek where a header is wrong."""

    def seekable(self) -> bool:
        return False


def read_audio(source: AudioSource, field: str = "audio", max_seconds: float | None = None) -> Audio:
    """Decode what libsndfile reads (wav, flac, ogg, mp3, aiff, ...) at its own rate, averaged over channels.

    Args:
        source: a path, the bytes of a file, or a seekable binary file object.
        field: how errors call this input.
        max_seconds: longer audio is refused as soon as that much of it is decoded; None for no limit.

    Raises:
        InvalidInput: the source is missing, can't be decoded, or is too long.
    """
    name = _name(source)
    if isinstance(source, str | Path) and not Path(source).is_file():
        raise InvalidInput(field, name, "no such file")
    try:
        with StraightFile(BytesIO(source) if isinstance(source, bytes) else source) as file:
            rate = file.samplerate
            blocks = [np.empty(0, np.float32), *_blocks(file, field, name, max_seconds)]
    except (soundfile.LibsndfileError, TypeError) as error:  # TypeError: a headerless ".raw" file
        raise InvalidInput(field, name, f"expected a wav, flac, ogg, mp3 or aiff file ({error})") from error
    return Audio(np.concatenate(blocks), rate)


def _blocks(file: soundfile.SoundFile, field: str, name: str, max_seconds: float | None) -> Iterator[Floats]:
    """The samples, float32 ``[n]``, to their end: a header may not know how many there are."""
    block, decoded = np.empty((BLOCK_FRAMES, file.channels), np.float32), 0
    while len(channels := file.read(out=block)):
        yield channels.mean(axis=1)
        decoded += len(channels)
        if max_seconds is not None and decoded > max_seconds * file.samplerate:
            raise InvalidInput(field, name, f"it exceeds the {max_seconds:g} s allowed")


def _name(source: AudioSource) -> str:
    if isinstance(source, bytes):
        return f"{len(source)} bytes"
    if isinstance(source, str | Path):
        return str(source)
    return str(getattr(source, "name", "stream"))
