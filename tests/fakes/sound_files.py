"""Sound files as telephones, browsers and cameras make them."""

from __future__ import annotations

import struct
from io import BytesIO

import av
import numpy as np
import numpy.typing as npt

RECORDERS = {
    "m4a": ("ipod", "aac", 44_100),
    "mp4": ("mp4", "aac", 48_000),
    "mov": ("mov", "pcm_s16le", 48_000),
    "alac.m4a": ("ipod", "alac", 44_100),
    "aac": ("adts", "aac", 24_000),
    "ts": ("mpegts", "aac", 48_000),
    "opus": ("ogg", "libopus", 48_000),
    "webm": ("webm", "libopus", 48_000),
    "mka": ("matroska", "libopus", 16_000),
    "mp3": ("mp3", "libmp3lame", 22_050),
    "flac": ("flac", "flac", 32_000),
    "amr": ("amr", "libopencore_amrnb", 8_000),
    "3gp": ("3gp", "libopencore_amrnb", 8_000),
    "ulaw.wav": ("wav", "pcm_mulaw", 8_000),
    "alaw.wav": ("wav", "pcm_alaw", 8_000),
}
"""Container, codec and rate by suffix."""
BY_LIBSNDFILE = ("opus", "mp3", "flac", "ulaw.wav", "alaw.wav")


def encoded(
    samples: npt.NDArray[np.float32], suffix: str, layout: str = "mono", picture: str = "", **mux: str
) -> bytes:
    """A file of what sounds like mono samples ``[n]`` at the suffix's rate.

    Args:
        layout: of the channels, which are all alike.
        picture: codec of a picture beside the sound.
        mux: the container's options.
    """
    container, codec, rate = RECORDERS[suffix]
    file = BytesIO()
    with av.open(file, "w", format=container, options=mux) as output:
        if picture:
            video = output.add_stream(picture, rate=10)
            video.width, video.height, video.pix_fmt = 64, 64, "yuvj420p" if picture == "mjpeg" else "yuv420p"
        sound = output.add_stream(codec, rate=rate)
        sound.layout = layout
        if picture:
            for number in range(10):
                image = av.VideoFrame.from_ndarray(np.full((64, 64, 3), number, np.uint8))
                image.pts = number
                output.mux(video.encode(image))
            output.mux(video.encode(None))
        channels = len(av.AudioLayout(layout).channels)
        numbers = np.repeat((samples * 32767).astype(np.int16), channels)[None]
        frame = av.AudioFrame.from_ndarray(numbers, "s16", layout)
        frame.sample_rate, frame.pts = rate, 0
        output.mux(sound.encode(frame))
        output.mux(sound.encode(None))
    return file.getvalue()


def with_number(data: bytes, mark: bytes, offset: int, number: int) -> bytes:
    """The file with another big-endian number at a distance from a mark."""
    at = data.index(mark) + offset
    return data[:at] + struct.pack(">I", number) + data[at + 4 :]


def wav(samples: npt.NDArray[np.float32], rate: int, size: int | None = None) -> bytes:
    """A wav file whose header claims a number of bytes."""
    content = (samples * 32767).astype("<i2").tobytes()
    claimed = len(content) if size is None else size
    form = struct.pack("<HHIIHH", 1, 1, rate, 2 * rate, 2, 16)
    head = b"RIFF" + struct.pack("<I", min(claimed + 36, 0xFFFFFFFF) if claimed else 0) + b"WAVE"
    return head + b"fmt \x10\0\0\0" + form + b"data" + struct.pack("<I", claimed) + content
