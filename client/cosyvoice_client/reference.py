"""The reference: a recording of the voice to speak with."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cosyvoice_client.errors import InvalidArgumentError

if TYPE_CHECKING:
    from cosyvoice_client.sound_file import Sound, Source

logger = logging.getLogger(__name__)

Samples = npt.NDArray[np.float32]
SERVER_RATE = 16_000
"""Rate of ``reference_wav`` unless ``reference_sample_rate`` says otherwise."""
RATES = (16_000, 48_000)
LEAST_S, MOST_S = 0.5, 30.0
"""Durations that the speech tokenizer was made for."""
FRAMES_PER_S = 100
PARTS = 16
"""The parts of a recording that are measured one after another, for the sake of memory."""
SILENT = 1e-3
"""Share of full scale that no silent recording reaches."""
EDGE, PAUSE = 10 ** (-40 / 20), 10 ** (-30 / 20)
"""Shares of the loudness: quieter than the one is silence at an end, than the other a pause."""
MARGIN_S = 0.2
"""Silence that stays at each end, so that no consonant is lost; and the least of a pause."""


@dataclass(frozen=True, eq=False)
class Reference:
    """Mono float32 samples ``[n]`` at ``rate``, and what they say (empty where the words don't matter).

    Attributes:
        note: which part of a longer recording this is; empty for all of it.
    """

    samples: Samples
    text: str = ""
    rate: int = SERVER_RATE
    note: str = ""


def read_reference(
    source: Source,
    text: str = "",
    rate: int | None = SERVER_RATE,
    *,
    name: str = "",
    least_s: float = LEAST_S,
) -> Reference:
    """Read a recording, average its channels, trim the silence at both ends, and convert it to ``rate``.

    One that is longer than 30 s and has no ``text`` is cut at a pause, and a warning says so. Of none is more
    than a minute decoded.

    Args:
        source: path, bytes or seekable binary file of a sound file (wav, flac, ogg, mp3, aiff, ...) or, where
            PyAV is there, of anything that ffmpeg hears a voice in (m4a, mp4, aac, webm, amr, ...).
        text: what it says.
        rate: 16000 to 48000; None for its own, from 8000 on.
        name: how errors call it; ``reference PATH`` by default.
        least_s: the least that has to be left between the silences.

    Raises:
        InvalidArgumentError: it can't be read, is silent, too short, or too long for its words; or the rate
            is not 16000 to 48000.
    """
    from cosyvoice_client.sound_file import SoundFileError, decode

    if rate is not None and not RATES[0] <= rate <= RATES[1]:
        raise InvalidArgumentError(f"rate of the reference: {rate} is not {RATES[0]} to {RATES[1]}")
    name = name or f"reference {source if isinstance(source, (str, Path)) else ''}".rstrip()
    sound = decode(source, name, 2 * MOST_S)
    samples, note = _trimmed(sound.samples, sound.rate), ""
    seconds = len(samples) / sound.rate
    if not seconds:
        raise SoundFileError(name, "it is silent" if len(sound.samples) else "it holds no sound")
    if seconds < least_s:
        raise SoundFileError(name, f"{_told(sound, seconds)}, and at least {least_s:g} s are needed")
    if seconds > MOST_S:
        if text.strip():
            reason = f"{_told(sound, seconds)}, and at most {MOST_S:g} s can go with a transcript"
            raise SoundFileError(name, reason)
        samples = _trimmed(samples[: _end(samples, sound.rate)], sound.rate)
        used_s = len(samples) / sound.rate
        note = f"{_told(sound, seconds)}, of which the first {used_s:.2f} s are used"
        logger.warning("%s: %s", name, note)
    new_rate = rate or sound.rate
    return Reference(resample(samples, sound.rate, new_rate), text, new_rate, note)


def _told(sound: Sound, seconds: float) -> str:
    """How long a recording is, of which ``seconds`` are left without silence."""
    if seconds > MOST_S and not sound.is_whole:
        return f"it lasts more than {2 * MOST_S:g} s"
    # Rounded away from the limits, so that none seems to be met.
    rounded = math.ceil if seconds > MOST_S else math.floor
    trimmed = "" if seconds == sound.seconds else f" between its silences, of {sound.seconds:.2f} s"
    return f"it lasts {rounded(round(100 * seconds, 3)) / 100:.2f} s{trimmed}"


def _trimmed(samples: Samples, rate: int) -> Samples:
    """Without the silence at the ends beyond the margin; nothing is left of silence alone."""
    levels, size, margin = _levels(samples, rate), rate // FRAMES_PER_S, round(MARGIN_S * rate)
    if not len(levels):
        return samples
    if _loudness(levels) < SILENT:
        return samples[:0]
    sounding = np.flatnonzero(~(levels < EDGE * _loudness(levels)))  # NaN is for the server to refuse
    start = max(sounding[0] * size - margin, 0)
    return samples[start : (sounding[-1] + 1) * size + margin]


def _end(samples: Samples, rate: int) -> int:
    """Where to cut a recording that is too long: in the last pause of what is allowed, if it has one."""
    most = samples[: round(MOST_S * rate)]
    levels, width = _levels(most, rate), round(MARGIN_S * FRAMES_PER_S)
    quiet = np.lib.stride_tricks.sliding_window_view(levels < PAUSE * _loudness(levels), width).all(axis=1)
    pauses = np.flatnonzero(quiet)
    if not len(pauses) or pauses[-1] < len(quiet) / 2:
        return len(most)
    return int(pauses[-1] + width // 2) * (rate // FRAMES_PER_S)


def _levels(samples: Samples, rate: int) -> Samples:
    """RMS of each 10 ms, a constant offset aside."""
    size = rate // FRAMES_PER_S
    frames = samples[: len(samples) // size * size].reshape(-1, size)
    if not len(frames):
        return samples[:0]
    with np.errstate(invalid="ignore", over="ignore"):  # of values that the server refuses
        offset = np.median(samples)
        parts = np.array_split(frames, PARTS)
        return np.concatenate([np.sqrt(np.square(part - offset).mean(axis=1)) for part in parts])


def _loudness(levels: Samples) -> float:
    """The level that 0.2 s reach, which a click doesn't."""
    return float(np.sort(levels)[-round(MARGIN_S * FRAMES_PER_S) :][0])


def resample(samples: npt.NDArray[Any], rate: int, new_rate: int) -> Samples:
    """Convert ``[n]`` at ``rate`` to about ``n * new_rate / rate`` samples at ``new_rate``."""
    if rate == new_rate:
        return samples.astype(np.float32)
    import soxr

    return np.asarray(soxr.resample(samples, rate, new_rate), np.float32)
