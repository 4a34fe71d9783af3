"""Sound files, and the sound of videos, decoded to mono.

No header is trusted: a length is what was decoded, of which there is a limit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import soundfile

from cosyvoice_client.errors import InvalidArgumentError
from cosyvoice_client.writer import PYAV

Samples = npt.NDArray[np.float32]
Source = str | Path | bytes | BinaryIO
RATES = (8_000, 192_000)
"""From the telephone's to the highest rate of recorders."""
MAX_CHANNELS = 6
"""The channels of a film's sound."""
BLOCK_FRAMES = 1 << 14
BY_LIBSNDFILE = "wav, flac, ogg, mp3 or aiff"
BY_FFMPEG = "m4a, mp4, aac, webm, mkv, amr or wma"
CONTAINERS = "aac,aiff,amr,asf,avi,caf,flac,matroska,mov,mp3,mpegts,ogg,wav"
"""Formats that ffmpeg may take a file for. Of others, some are lists of addresses that it would open."""
DECODERS = (
    "aac,ac3,adpcm_ima_wav,adpcm_ms,alac,amrnb,amrwb,eac3,flac,gsm_ms,libopencore_amrnb,libopencore_amrwb,"
    "libopus,mp2float,mp3,mp3float,opus,pcm_alaw,pcm_f32be,pcm_f32le,pcm_f64le,pcm_mulaw,pcm_s16be,pcm_s16le,"
    "pcm_s24be,pcm_s24le,pcm_s32be,pcm_s32le,pcm_u8,vorbis,wmapro,wmav1,wmav2"
)
"""Decoders that ffmpeg may run: none of pictures, whose sizes a header would set."""
MAX_ALLOCATION = 64 << 20
UNSIZED = b"data\0\0\0\0"
HEADER_BYTES = 4096
MAX_UNSIZED_BYTES = 100 << 20


class SoundFileError(InvalidArgumentError):
    """A file can't be used; ``reason`` is a sentence about it."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.reason = reason


class DamagedError(Exception):
    """The rest of a file can't be decoded."""


@dataclass(frozen=True, eq=False)
class Sound:
    """Mono float32 samples ``[n]`` at ``rate``; ``is_whole`` says whether they go to the end of the file."""

    samples: Samples
    rate: int
    is_whole: bool

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate


def decode(source: Source, name: str, max_seconds: float) -> Sound:
    """The sound of a file, averaged over channels, and no more of it than about ``max_seconds``.

    libsndfile reads what it knows (wav, flac, ogg, mp3, aiff, ...), and ffmpeg the rest, where PyAV is there.

    Args:
        source: a path, the bytes of a file, or a seekable binary file object.
        name: how errors call it.

    Raises:
        SoundFileError: there is no such file, or it can't be decoded.
    """
    with _opened(source, name) as file:
        file.seek(0)
        if not file.read(1):
            raise SoundFileError(name, "the file is empty")
        file.seek(0)
        sound = _by_libsndfile(file, name, max_seconds)
        if sound is None:
            file.seek(0)
            sound = _by_ffmpeg(file, name, max_seconds)
    return sound


def _opened(source: Source, name: str) -> AbstractContextManager[BinaryIO]:
    if isinstance(source, bytes):
        return BytesIO(source)
    if not isinstance(source, (str, Path)):
        return nullcontext(source)
    if not Path(source).is_file():
        raise SoundFileError(name, "there is no such file")
    return open(source, "rb")


class _StraightFile(soundfile.SoundFile):
    """A file that is read from its start to its end: libsndfile can't seek where a header is wrong."""

    def seekable(self) -> bool:
        return False


def _by_libsndfile(file: BinaryIO, name: str, max_seconds: float) -> Sound | None:
    """None for what libsndfile doesn't know."""
    try:
        sound = _StraightFile(_sized(file))
    except (soundfile.LibsndfileError, TypeError):  # TypeError: a headerless ".raw" file
        return None
    with sound:
        _check_form(name, sound.samplerate, sound.channels)
        return _mixed(_blocks(sound), sound.samplerate, name, max_seconds)


def _sized(file: BinaryIO) -> BinaryIO:
    """The file; of a wav that says it holds 0 bytes, which libsndfile believes, a copy that says too many."""
    head = file.read(HEADER_BYTES)
    file.seek(0)
    at = head.find(UNSIZED)
    if at < 0 or not head.startswith(b"RIFF"):
        return file
    content = file.read(MAX_UNSIZED_BYTES)
    return BytesIO(content[: at + 4] + b"\xff" * 4 + content[at + len(UNSIZED) :])


def _blocks(sound: soundfile.SoundFile) -> Iterator[Samples]:
    block = np.empty((BLOCK_FRAMES, sound.channels), np.float32)
    try:
        while len(frames := sound.read(out=block)):
            yield frames
    except soundfile.LibsndfileError as error:
        raise DamagedError from error


def _by_ffmpeg(file: BinaryIO, name: str, max_seconds: float) -> Sound:
    try:
        import av
    except ImportError:
        reason = f"expected a {BY_LIBSNDFILE} file; {BY_FFMPEG} needs PyAV: pip install {PYAV}"
        raise SoundFileError(name, reason) from None
    _limit_memory()
    options = {"format_whitelist": CONTAINERS, "codec_whitelist": DECODERS}
    try:
        container = av.open(file, options=options, metadata_errors="replace")
    except av.FFmpegError:
        reason = f"it is damaged, or no sound file: expected a {BY_LIBSNDFILE} file, or {BY_FFMPEG}"
        raise SoundFileError(name, reason) from None
    with container:
        stream = container.streams.best("audio")
        if stream is None:
            raise SoundFileError(name, "it holds no sound track")
        codec: Any = stream.codec_context
        if codec is None or codec.name not in DECODERS.split(","):
            raise SoundFileError(
                name, f"its sound track is in a form that is not read: {codec and codec.name}"
            )
        _check_form(name, codec.sample_rate, codec.channels)
        return _mixed(_frames(container, stream), codec.sample_rate, name, max_seconds)


def _limit_memory() -> None:
    """Limit what ffmpeg takes at a time: a few bytes of an mp4 file can say that its tables are gigabytes."""
    import av._core

    # A library's handle finds the functions of those that it needs, here of libavutil; not on Windows.
    library = ctypes.CDLL(av._core.__file__)
    with suppress(AttributeError):
        library.av_max_alloc(ctypes.c_size_t(MAX_ALLOCATION))


def _frames(container: Any, stream: Any) -> Iterator[Samples]:
    import av

    codec = stream.codec_context
    as_floats = av.AudioResampler("fltp", codec.layout, codec.sample_rate)
    try:
        for frame in chain(container.decode(stream), [None]):
            for part in as_floats.resample(frame):
                yield np.asarray(part.to_ndarray().T, np.float32)
    except (av.FFmpegError, ValueError) as error:
        raise DamagedError from error


def _check_form(name: str, rate: int, channels: int) -> None:
    if not RATES[0] <= rate <= RATES[1]:
        limit = f"expected {RATES[0]} to {RATES[1]}"
        raise SoundFileError(name, f"it has {rate} samples per second, {limit}")
    if not 0 < channels <= MAX_CHANNELS:
        raise SoundFileError(name, f"it has {channels} channels, at most {MAX_CHANNELS} are expected")


def _mixed(blocks: Iterator[Samples], rate: int, name: str, max_seconds: float) -> Sound:
    """The mean over channels of blocks ``[n, channels]``."""
    parts, count = [np.empty(0, np.float32)], 0
    try:
        for block in blocks:
            parts.append(block.mean(axis=1))
            count += len(block)
            if count > max_seconds * rate:
                return Sound(np.concatenate(parts), rate, is_whole=False)
    except DamagedError:
        raise SoundFileError(name, f"it is damaged or cut off after {count / rate:.2f} s") from None
    return Sound(np.concatenate(parts), rate, is_whole=True)
