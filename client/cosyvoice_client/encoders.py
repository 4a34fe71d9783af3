"""Samples to the formats of OpenAI's APIs, as they come.

Each encoder is tuned so that little is held back: a listener can decode all but the last few ten
milliseconds of what has been fed. PyAV's wheel brings ffmpeg, which does the work; importing this needs it.
"""

from __future__ import annotations

import io
import struct
import threading
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

import av
import numpy as np
import numpy.typing as npt

from cosyvoice_client import g711
from cosyvoice_client.chunk import SAMPLE_RATE
from cosyvoice_client.pcm import pcm16
from cosyvoice_client.resampler import StreamResampler

Samples = npt.NDArray[np.float32]
Format = Literal["mp3", "opus", "aac", "flac", "wav", "pcm", "g711_ulaw", "g711_alaw"]
FORMATS: tuple[Format, ...] = get_args(Format)
MARK = "AI-generated"
"""Of synthetic speech, for machines, in the comment of every format that carries one."""
UNKNOWN_SIZE = 0xFFFFFFFF
"""Bytes in the header of a wav file whose end is not known yet; readers then read to the end. It is no count
of frames: as such readers take it for negative."""
CONTENT_TYPES: dict[str, str] = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
    "g711_ulaw": "audio/PCMU",
    "g711_alaw": "audio/PCMA",
}
"""Media types; those of G.711 are RFC 4856's."""
BASIC = "audio/basic"
"""The mu-law at 8000 samples a second (RFC 2046, section 4.3)."""
LAWS: dict[str, g711.Law] = {"g711_ulaw": "ulaw", "g711_alaw": "alaw"}
"""Formats of the telephone, by the names of OpenAI's Realtime API."""
ANY_RATE = (8_000, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
FRAMES_BEHIND = 3
"""Frames that a codec of ffmpeg's holds back at most: one that fills up, one that it looks ahead, and one of
its container's."""
RATES: dict[str, tuple[int, ...]] = (
    dict.fromkeys(FORMATS, ANY_RATE)
    | {"opus": (8_000, 12_000, 16_000, 24_000, 48_000)}  # what the codec knows
    | dict.fromkeys(LAWS, (8_000, 16_000))
)
"""Samples per second that each format can have here."""


@dataclass(frozen=True)
class Codec:
    """How ffmpeg makes a format.

    Attributes:
        container, name: ffmpeg's names of the muxer and of the codec.
        sample_format: what the codec takes.
        mux, options: settings of the muxer and of the codec, against holding back.
        drained: whether everything is out before the file is closed. Muxers other than ogg's go back at
            the end to bring the header up to date, in what has been sent long ago; ogg's writes its last
            page then.
    """

    container: str
    name: str
    sample_format: str
    mux: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    drained: bool = True


CODECS = {
    # Without Xing's frame and ID3, which break players of several files in one stream.
    "mp3": Codec("mp3", "libmp3lame", "s16p", {"write_xing": "0", "id3v2_version": "0"}, {"reservoir": "0"}),
    "opus": Codec(
        "ogg",
        "libopus",
        "s16",
        {"page_duration": "20000", "flush_packets": "1"},
        {"frame_duration": "20"},
        drained=False,
    ),
    "aac": Codec("adts", "aac", "fltp"),
    "flac": Codec("flac", "flac", "s16", options={"frame_size": "480"}),
}


class Encoder(Protocol):
    """Bytes of one file, in order. Closed by any thread, also one that isn't finished.

    Attributes:
        instant: whether it takes less than handing it to a thread would.
        behind_s: the longest time for which a sample is held back, in seconds; infinite for the whole file.
    """

    instant: bool
    behind_s: float

    def feed(self, samples: Samples) -> bytes:
        """Bytes that mono samples ``[n]`` in [-1, 1] make certain; may be none."""

    def finish(self) -> bytes:
        """The rest."""

    def close(self) -> None:
        """Let go of memory and threads, which stay until the next collection of garbage otherwise."""


def make_encoder(format: Format, rate: int, spoken_rate: int = SAMPLE_RATE) -> Encoder:
    """The encoder of one utterance of ``spoken_rate`` samples per second, to ``rate``."""
    return at_rate(encoder_at(format, rate), rate, spoken_rate)


def is_instant(format: Format, rate: int, spoken_rate: int = SAMPLE_RATE) -> bool:
    """Whether :func:`make_encoder` gives an instant encoder, which it then makes at once."""
    return format in ("pcm", "wav") and rate == spoken_rate


def at_rate(encoder: Encoder, rate: int, spoken_rate: int = SAMPLE_RATE) -> Encoder:
    """An encoder of ``rate`` for speech of another."""
    return encoder if rate == spoken_rate else ResampledEncoder(encoder, rate, spoken_rate)


def usual_rate(format: Format) -> int:
    """Samples per second of a format of which nobody has asked for others."""
    return g711.RATE if format in LAWS else SAMPLE_RATE


def possible_rate(format: Format, rate: int) -> int:
    """The rate itself, or the next one above that the format can have."""
    return min((each for each in RATES[format] if each >= rate), default=RATES[format][-1])


def encoder_at(format: Format, rate: int) -> Encoder:
    """The encoder of samples that have the file's rate."""
    if format == "pcm":
        return PcmEncoder()
    if format in LAWS:
        return G711Encoder(LAWS[format])
    return WavEncoder(rate) if format == "wav" else CodecEncoder(CODECS[format], rate)


def content_type(format: Format, rate: int) -> str:
    """The media type of a file, which tells the rate where the file itself doesn't."""
    if (format, rate) == ("g711_ulaw", g711.RATE):
        return BASIC
    parameter = f";rate={rate}" if format == "pcm" or format in LAWS else ""
    return CONTENT_TYPES[format] + parameter


class ResampledEncoder:
    """An encoder behind a change of the rate."""

    instant = False

    def __init__(self, encoder: Encoder, rate: int, spoken_rate: int) -> None:
        self._encoder = encoder
        self._resampler = StreamResampler(spoken_rate, rate)
        self.behind_s = encoder.behind_s + self._resampler.delay_s

    def feed(self, samples: Samples) -> bytes:
        return self._encoder.feed(self._resampler.push(samples))

    def finish(self) -> bytes:
        return self._encoder.feed(self._resampler.finish()) + self._encoder.finish()

    def close(self) -> None:
        self._encoder.close()


class PcmEncoder:
    """Little-endian 16-bit integers."""

    instant, behind_s = True, 0.0

    def feed(self, samples: Samples) -> bytes:
        return pcm16(samples).tobytes()

    def finish(self) -> bytes:
        return b""

    def close(self) -> None:
        """Nothing is held."""


class G711Encoder:
    """A byte for each sample, by one of the telephone's two laws."""

    instant, behind_s = True, 0.0

    def __init__(self, law: g711.Law) -> None:
        self._law = law

    def feed(self, samples: Samples) -> bytes:
        return g711.encode(self._law, pcm16(samples))

    def finish(self) -> bytes:
        return b""

    def close(self) -> None:
        """Nothing is held."""


class WavEncoder:
    """The same behind a header that leaves the size open."""

    instant, behind_s = True, 0.0

    def __init__(self, rate: int) -> None:
        self._header = wav_header(rate)

    def feed(self, samples: Samples) -> bytes:
        header, self._header = self._header, b""
        return header + pcm16(samples).tobytes()

    def finish(self) -> bytes:
        return self._header

    def close(self) -> None:
        """Nothing is held."""


def wav_header(rate: int) -> bytes:
    """RIFF header of mono 16-bit integers, with the mark in its list of facts."""
    text = MARK.encode() + b"\0\0"
    text = text[: len(text) // 2 * 2]  # chunks have an even size
    info = b"INFOICMT" + struct.pack("<I", len(text)) + text
    format = struct.pack("<HHIIHH", 1, 1, rate, 2 * rate, 2, 16)
    return b"".join(
        [
            b"RIFF" + struct.pack("<I", UNKNOWN_SIZE) + b"WAVE",
            b"fmt " + struct.pack("<I", len(format)) + format,
            b"LIST" + struct.pack("<I", len(info)) + info,
            b"data" + struct.pack("<I", UNKNOWN_SIZE),
        ]
    )


class CodecEncoder:
    """A codec of ffmpeg's."""

    instant = False

    def __init__(self, codec: Codec, rate: int) -> None:
        self._codec = codec
        self._rate = rate
        self._written = Written()
        self._container = _open(self._written, codec)
        self._container.metadata["comment"] = MARK
        self._stream = self._container.add_stream(codec.name, rate=rate, options=codec.options)
        self._stream.layout = "mono"
        self._stream.format = codec.sample_format
        self._container.start_encoding()  # else the first samples wait for the codec to be opened
        self.behind_s = FRAMES_BEHIND * self._stream.codec_context.frame_size / rate
        self._position = 0
        self._in_use = threading.Lock()

    def feed(self, samples: Samples) -> bytes:
        with self._in_use:
            if len(samples):
                self._encode(self._frame(pcm16(samples)))
            return self._written.take()

    def finish(self) -> bytes:
        with self._in_use:
            self._encode(None)
            rest = self._written.take()
            self._container.close()
            return rest if self._codec.drained else rest + self._written.take()

    def close(self) -> None:
        with self._in_use:
            self._container.close()

    def _frame(self, samples: npt.NDArray[np.int16]) -> av.AudioFrame:
        frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.sample_rate = self._rate
        frame.pts = self._position
        self._position += len(samples)
        return frame

    def _encode(self, frame: av.AudioFrame | None) -> None:
        for packet in self._stream.encode(frame):
            self._container.mux(packet)


def _open(file: Written, codec: Codec) -> Any:
    return av.open(file, "w", format=codec.container, options=codec.mux)


class Written(io.RawIOBase):
    """A file that can only be written, and that gives away what it holds."""

    def __init__(self) -> None:
        self._held = bytearray()

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def write(self, data: Any) -> int:
        self._held += data
        return len(data)

    def take(self) -> bytes:
        held, self._held = bytes(self._held), bytearray()
        return held
