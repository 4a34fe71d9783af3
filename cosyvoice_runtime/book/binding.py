"""The file of a whole book: m4b or Ogg Opus with chapters, or wav."""

from __future__ import annotations

import wave
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cosyvoice_client.captions import clock
from cosyvoice_client.pcm import FULL_SCALE, pcm16
from cosyvoice_client.resampler import StreamResampler
from cosyvoice_client.writer import PYAV, RecordedFile, WholeFile
from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.book.parts import Pcm
from cosyvoice_runtime.book.timeline import ChapterMark
from cosyvoice_runtime.errors import InvalidInput

WAV = ".wav"
MOST_WAV_SAMPLES = (2**32 - 1024) // 2
"""Samples of a wav file, whose header counts its bytes with 32 bits: at 24,000 a second, a day."""
MOST_TITLE_BYTES = 255
"""Bytes of a chapter's title: its length has one byte in an m4b file's list of chapters (``chpl``)."""


@dataclass(frozen=True)
class Binding:
    """How ffmpeg makes a format.

    Attributes:
        container, codec: ffmpeg's names of the muxer and of the encoder.
        sample_format: what the encoder takes.
        bit_rate: bits per second.
        rates: samples per second that the encoder takes, in order; empty for all that voices have.
        metadata: of every book.
    """

    container: str
    codec: str
    sample_format: str
    bit_rate: int
    rates: tuple[int, ...] = ()
    metadata: tuple[tuple[str, str], ...] = ()


BINDINGS = {
    # Half of the 128 kbit/s that ffmpeg gives two channels by default; media type 2 is an audiobook's.
    ".m4b": Binding("ipod", "aac", "fltp", 64_000, metadata=(("media_type", "2"), ("genre", "Audiobook"))),
    # Opus keeps the full band of one voice from 21 kbit/s on (Xiph's wiki, "Opus Recommended Settings").
    ".opus": Binding("ogg", "libopus", "s16", 32_000, (24_000, 48_000), (("genre", "Audiobook"),)),
}


class Imprint(NamedTuple):
    """All that a book's file tells of it.

    Attributes:
        title, author: of the book.
        chapters: places count samples.
        sample_rate: per second.
    """

    title: str
    author: str
    chapters: Sequence[ChapterMark]
    sample_rate: int


SUFFIXES = (*BINDINGS, WAV)


def check_output(path: Path) -> None:
    """Refuse an output of another kind, or one that can't be made.

    Raises:
        InvalidInput: another suffix, PyAV is missing, or the folder is.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InvalidInput("output", str(path), f"expected a name ending in one of {', '.join(SUFFIXES)}")
    if suffix in BINDINGS and find_spec("av") is None:
        raise InvalidInput("output", str(path), f"{suffix} needs PyAV: pip install {PYAV}")
    if not path.parent.is_dir():
        raise InvalidInput("output", str(path), f"there is no folder {path.parent}")
    if path.is_dir():
        raise InvalidInput("output", str(path), "it is a folder")


def bind(path: Path, stretches: Iterable[Pcm], imprint: Imprint) -> None:
    """Write a book's file, stretch by stretch.

    Args:
        stretches: all samples of the book, each ``[n]``.

    Raises:
        InvalidInput: it is too long for a wav file.
        OSError: it can't be written.
    """
    if path.suffix.lower() == WAV:
        _write_wav(path, stretches, imprint)
        return
    with RecordedFile(path, "wb") as file, file.raising():
        _encode(file, BINDINGS[path.suffix.lower()], stretches, imprint)


def _write_wav(path: Path, stretches: Iterable[Pcm], imprint: Imprint) -> None:
    length, rate = imprint.chapters[-1].end, imprint.sample_rate
    if length > MOST_WAV_SAMPLES:
        hours, kept = f"{length / rate / 3600:.0f} hours", "rename the folder of its parts alike"
        raise InvalidInput("output", str(path), f"{hours} don't fit into a wav file; use .m4b, and {kept}")
    with WholeFile(path, "wb") as file, wave.open(file, "wb") as wav:
        wav.setparams((1, 2, rate, length, "NONE", ""))
        for samples in stretches:
            wav.writeframesraw(samples.astype("<i2").tobytes())


def _encode(file: RecordedFile, binding: Binding, stretches: Iterable[Pcm], imprint: Imprint) -> None:
    import av  # The file of a book in wav needs none.
    from av.container import Flags

    from cosyvoice_client.encoders import MARK

    rate = imprint.sample_rate
    told = {"title": imprint.title, "album": imprint.title, "artist": imprint.author, "comment": MARK}
    file_rate = next((each for each in binding.rates if each >= rate), rate)
    with av.open(file, "w", format=binding.container) as container:
        # Without this flag an Ogg stream has a random serial number, and the same book is another file.
        bitexact: Any = Flags.bitexact.value
        container.flags |= bitexact
        container.metadata.update({**told, **dict(binding.metadata)})
        if binding.container == "ogg":
            container.metadata.update(_chapter_comments(imprint.chapters, rate))
        else:
            container.set_chapters([_chapter(*each, rate) for each in enumerate(imprint.chapters)])
        stream: Any = container.add_stream(binding.codec, rate=file_rate)
        stream.layout, stream.format, stream.bit_rate = "mono", binding.sample_format, binding.bit_rate
        place = 0
        for samples in _at_rate(_short(stretches, rate), rate, file_rate):
            frame = av.AudioFrame.from_ndarray(pcm16(samples)[None], format="s16", layout="mono")
            frame.sample_rate, frame.pts = file_rate, place
            place += len(samples)
            with file.raising():
                container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def _chapter(number: int, mark: ChapterMark, rate: int) -> Any:
    """A chapter as PyAV takes it."""
    title = _short_title(mark)
    place = {"start": mark.start, "end": mark.end, "time_base": Fraction(1, rate)}
    return {"id": number, **place, "metadata": {"title": title}}


def _chapter_comments(marks: Sequence[ChapterMark], rate: int) -> dict[str, str]:
    """Chapters as comments of an Ogg file have them (Xiph's wiki, "Chapter Extension").

    ffmpeg 8.1 would write those that begin in the second half of a second a second too late.
    """
    comments = dict[str, str]()
    for number, mark in enumerate(marks):
        begin = clock(1000 * mark.start // rate, ".")
        comments |= {f"CHAPTER{number:03}": begin, f"CHAPTER{number:03}NAME": _short_title(mark)}
    return comments


def _short_title(mark: ChapterMark) -> str:
    return mark.title.encode()[:MOST_TITLE_BYTES].decode(errors="ignore")


def _short(stretches: Iterable[Pcm], most: int) -> Iterator[Floats]:
    """Cut samples into pieces of at most so many, as the networks give them."""
    for samples in stretches:
        for start in range(0, len(samples), most):
            yield _floats(samples[start : start + most])


def _floats(samples: Pcm) -> Floats:
    return samples.astype(np.float32) / FULL_SCALE


def _at_rate(pieces: Iterable[Floats], rate: int, new_rate: int) -> Iterator[Floats]:
    if rate == new_rate:
        yield from pieces
        return
    resampler = StreamResampler(rate, new_rate)
    for piece in pieces:
        yield resampler.push(piece)
    yield resampler.finish()
