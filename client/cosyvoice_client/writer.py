"""Audio kept while it arrives."""

from __future__ import annotations

import io
import sys
import wave
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cosyvoice_client import g711
from cosyvoice_client.chunk import SAMPLE_RATE, AudioChunk
from cosyvoice_client.errors import InvalidArgumentError
from cosyvoice_client.pcm import pcm16
from cosyvoice_client.resampler import StreamResampler

Write = Callable[[npt.NDArray[np.float32]], object]
Opener = Callable[[str | Path, int], AbstractContextManager[Write]]

STDOUT = "-"
Encoded = Literal["mp3", "opus", "aac"]
ENCODED: dict[str, Encoded] = {".mp3": "mp3", ".opus": "opus", ".ogg": "opus", ".aac": "aac"}
"""Containers and codecs that PyAV writes, by suffix."""
LAWS: dict[str, g711.Law] = {".ulaw": "ulaw", ".alaw": "alaw"}
"""Telephone's files of G.711 without a header, by suffix: 8000 samples a second, whatever is appended."""
PYAV = "av==18.1.0"
"""As in requirements/front.txt."""


@contextmanager
def audio_writer(target: str | Path, rate: int = SAMPLE_RATE) -> Iterator[Write]:
    """A function that appends mono float32 samples ``[n]`` to a file, as 16-bit integers.

    The suffix says how: ``.wav``, ``.flac``, ``.mp3``, ``.opus`` (``.ogg``), ``.aac``, ``.ulaw`` or ``.alaw``
    (G.711) or ``.raw`` (``.pcm``: little-endian samples without a header). ``-`` is raw on standard output.
    All are written as the samples come. A wav file is valid after every chunk, even if the process is killed;
    mp3, opus and aac lack their last frames then; a flac file is valid when the ``with`` block has ended.

    Raises:
        InvalidArgumentError: another suffix, PyAV is missing, or the file can't be written.
    """
    opener, resources = _opener(target), ExitStack()
    with _reported(target):
        write = resources.enter_context(opener(target, rate))

    def reported_write(samples: npt.NDArray[np.float32]) -> None:
        with _reported(target):
            write(samples)

    try:
        yield reported_write
    finally:
        with _reported(target):
            resources.close()


def recorded(target: str | Path, chunks: Iterable[AudioChunk]) -> Iterator[AudioChunk]:
    """The same chunks, each when it is in the file, which has their rate.

    The file is made when the first chunk is there.

    Raises:
        InvalidArgumentError: as :func:`audio_writer`.
    """
    with ExitStack() as resources:
        write: Write | None = None
        for chunk in chunks:
            if write is None:
                write = resources.enter_context(audio_writer(target, chunk.sample_rate))
            write(chunk.samples)
            yield chunk


def rate_of(target: str | Path, asked: int | None) -> int | None:
    """Samples per second of a file for which this rate was asked for; None are those of the speech.

    Raises:
        InvalidArgumentError: the file can't have the rate.
    """
    suffix = Path(target).suffix.lower()
    rate = g711.RATE if suffix in LAWS else asked
    if asked is not None and suffix in ENCODED:
        from cosyvoice_client.encoders import possible_rate

        rate = possible_rate(ENCODED[suffix], asked)
    if asked not in (None, rate):
        raise InvalidArgumentError(f"--sample-rate: {asked} is not {rate}, which {target} can have")
    return rate


def check_target(target: str | Path) -> None:
    """Raise InvalidArgumentError if the suffix is none of those or needs PyAV, or there is no such place."""
    _opener(target)
    if not Path(target).parent.is_dir():
        raise InvalidArgumentError(f"output {target}: there is no folder {Path(target).parent}")


def _opener(target: str | Path) -> Opener:
    suffix = STDOUT if str(target) == STDOUT else Path(target).suffix.lower()
    if suffix not in OPENERS:
        known = ", ".join(name for name in OPENERS if name != STDOUT)
        raise InvalidArgumentError(f"output {target}: expected a name ending in one of {known}")
    if suffix in ENCODED and find_spec("av") is None:
        raise InvalidArgumentError(f"output {target}: {suffix} needs PyAV: pip install {PYAV}")
    if suffix == STDOUT and sys.stdout is None:
        raise InvalidArgumentError(f"output {target}: standard output is closed")
    return OPENERS[suffix]


@contextmanager
def _reported(target: str | Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidArgumentError(f"output {target}: {error.strerror or error}") from error


class WholeFile(io.FileIO):
    """An unbuffered file of which a write is whole, or an error says why it isn't."""

    def write(self, data: Any) -> int:
        return _write_whole(super().write, data)


class RecordedFile(WholeFile):
    """A file for a library in C, through which no exception passes: what a write raised is kept."""

    _error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self._error = error
            return 0

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Raise what a write did, in place of what the library makes of it.

        Raises:
            OSError: something could not be written, here or before.
        """
        try:
            yield
        except Exception:
            if self._error is None:
                raise
        if self._error is not None:
            raise self._error


def _write_whole(write: Callable[[memoryview], int | None], data: bytes) -> int:
    """Write all of it with a function that may write less, as that of an unbuffered file on a full disk."""
    left = memoryview(data)
    while left:
        left = left[write(left) :]
    return len(data)


@contextmanager
def _wav(target: str | Path, rate: int) -> Iterator[Write]:
    # Unbuffered, and the header is brought up to date by every writeframes: valid on disk at any time.
    with WholeFile(target, "wb") as file, wave.open(file, "wb") as wav:
        wav.setnchannels(1)
        wav.setsampwidth(2)
        wav.setframerate(rate)
        wav.writeframes(b"")

        def append(samples: npt.NDArray[np.float32]) -> None:
            end = file.tell()
            try:
                wav.writeframes(pcm16(samples).tobytes())
            except OSError:
                file.truncate(end)  # to what the header counts
                raise

        yield append


@contextmanager
def _flac(target: str | Path, rate: int) -> Iterator[Write]:
    import soundfile

    with (
        RecordedFile(target, "wb") as stream,
        stream.raising(),
        soundfile.SoundFile(stream, "w", rate, 1, "PCM_16", format="FLAC") as file,
    ):

        def append(samples: npt.NDArray[np.float32]) -> None:
            with stream.raising():
                file.write(pcm16(samples))

        yield append


@contextmanager
def _encoded(format: Encoded, target: str | Path, rate: int) -> Iterator[Write]:
    from cosyvoice_client.encoders import make_encoder, possible_rate

    with open(target, "wb") as file:

        def append(data: bytes) -> None:
            file.write(data)
            file.flush()

        encoder = make_encoder(format, possible_rate(format, rate), rate)
        try:
            yield lambda samples: append(encoder.feed(samples))
        finally:
            append(encoder.finish())


@contextmanager
def _g711(law: g711.Law, target: str | Path, rate: int) -> Iterator[Write]:
    resampler = StreamResampler(rate, g711.RATE) if rate != g711.RATE else None

    with WholeFile(target, "wb") as file:

        def append(samples: npt.NDArray[np.float32]) -> None:
            file.write(g711.encode(law, pcm16(samples)))

        if resampler is None:
            yield append
        else:
            try:
                yield lambda samples: append(resampler.push(samples))
            finally:
                append(resampler.finish())


@contextmanager
def _raw(target: str | Path, rate: int) -> Iterator[Write]:  # noqa: ARG001
    with WholeFile(target, "wb") as file:
        yield lambda samples: file.write(pcm16(samples).tobytes())


@contextmanager
def _stdout(target: str | Path, rate: int) -> Iterator[Write]:  # noqa: ARG001
    def write(samples: npt.NDArray[np.float32]) -> None:
        _write_whole(sys.stdout.buffer.write, pcm16(samples).tobytes())
        sys.stdout.buffer.flush()

    yield write


OPENERS: dict[str, Opener] = {
    ".wav": _wav,
    ".flac": _flac,
    **{suffix: partial(_encoded, format) for suffix, format in ENCODED.items()},
    **{suffix: partial(_g711, law) for suffix, law in LAWS.items()},
    ".raw": _raw,
    ".pcm": _raw,
    STDOUT: _stdout,
}
