"""Recordings of voices, decoded to mono float32."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.errors import InvalidInput

if TYPE_CHECKING:
    from cosyvoice_client.sound_file import Source


def read_audio(source: Source, field: str = "audio", *, wordless: bool = False) -> Audio:
    """Read a recording of a voice at its own rate, as :func:`cosyvoice_client.read_reference` does.

    Args:
        source: a path, the bytes of a file, or a seekable binary file object.
        field: how errors call this input.
        wordless: whether nobody says what is said in it, so that the end of a long one can be left out.

    Raises:
        InvalidInput: the source is missing, can't be decoded, is silent, too short or too long.
    """
    from cosyvoice_client.reference import read_reference
    from cosyvoice_client.sound_file import SoundFileError

    try:
        read = read_reference(source, "" if wordless else "its words", None)
    except SoundFileError as error:
        raise InvalidInput(field, _name(source), error.reason) from error
    return Audio(read.samples, read.rate)


def _name(source: Source) -> str:
    if isinstance(source, bytes):
        return f"{len(source)} bytes"
    return str(source if isinstance(source, Path) else getattr(source, "name", source))
