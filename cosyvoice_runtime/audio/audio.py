"""A mono waveform: its rates and speeds, and the conditions that it meets as a reference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cosyvoice_runtime.arrays import Array, Floats
from cosyvoice_runtime.errors import InvalidInput

EXTRACTOR_SAMPLE_RATE = 16_000
"""Hz that the speech tokenizer and the speaker encoder take."""


@dataclass(frozen=True, eq=False)
class Audio:
    """Mono audio. ``samples``: [n] float32, full scale [-1, 1]; ``rate``: samples per second."""

    samples: Floats
    rate: int

    @property
    def seconds(self) -> float:
        return self.samples.shape[0] / self.rate


MIN_SPEED, MAX_SPEED = 0.5, 2.0


def check_speed(speed: float) -> None:
    """Raise InvalidInput for a speed outside 0.5 to 2.0."""
    if not MIN_SPEED <= speed <= MAX_SPEED:
        raise InvalidInput("speed", speed, f"a number from {MIN_SPEED} to {MAX_SPEED}")


def paced(speed: float, rate: float) -> float:
    """The speed of a part of a text that is to be ``rate`` times as fast as the request's; InvalidInput
    outside 0.5 to 2.0."""
    product = round(speed * rate, 6)  # A client sends speeds as float32.
    if not MIN_SPEED <= product <= MAX_SPEED:
        limit = f"a rate that times the speed {speed:g} is {MIN_SPEED:g} to {MAX_SPEED:g}"
        raise InvalidInput("target_text", f"rate {rate:g}", limit)
    return product


MIN_SECONDS = 0.5
MAX_SECONDS = 30.0  # what the speech tokenizer was made for (upstream's frontend refuses more, too)
MIN_RATE = 8_000  # the telephone's; upstream asks for 16 kHz, as a voice without treble sounds dull
MAX_RATE = 192_000  # the highest rate of recorders; bounds the work that a request can ask for
PEAK_LIMIT = 1.5  # lossy codecs overshoot full scale by up to 3 dB; integers sent as floats are far above
SILENCE_RMS = 1e-3  # -60 dBFS: 40 dB below ordinary speech, what is left is the noise of a room
FULL_SCALE = 0.999
MAX_CLIPPED = 0.05  # normalised speech touches full scale in < 0.1 % of its samples, overdriven in > 5 %


def reference_audio(samples: Array, rate: int, length: int | None = None) -> Audio:
    """Reference audio from a request's arrays, mixed to mono and checked.

    Args:
        samples: [n] or [channels, n] floats in [-1, 1].
        rate: samples per second.
        length: valid samples at the start of ``samples``; all by default.

    Raises:
        InvalidInput: naming ``reference_wav``, ``reference_wav_len`` or ``reference_sample_rate``.
    """
    if samples.dtype.kind != "f":
        raise InvalidInput("reference_wav", samples.dtype, "expected floats in [-1, 1]")
    if samples.ndim not in (1, 2) or samples.size == 0:
        raise InvalidInput("reference_wav", tuple(samples.shape), "expected the shape [n] or [channels, n]")
    total = samples.shape[-1]
    if length is not None and not 0 < length <= total:
        raise InvalidInput("reference_wav_len", length, f"reference_wav holds {total} samples")
    mono = samples.reshape(-1, total)[:, :length].astype(np.float32).mean(axis=0)
    audio = Audio(mono, rate)
    check_reference(audio)
    return audio


def check_reference(audio: Audio) -> None:
    """Refuse audio that no voice can be made from.

    Raises:
        InvalidInput: it is not mono, or not of floats; the sample rate is outside 8 to 192 kHz; the duration
            outside 0.5 to 30 s; a sample is not finite or far outside [-1, 1]; the audio is silent or heavily
            clipped.
    """
    if audio.samples.ndim != 1:
        _refuse(f"samples of the shape {audio.samples.shape}", "expected the shape [n]")
    if audio.samples.dtype.kind != "f":
        _refuse(f"samples of {audio.samples.dtype}", "expected floats in [-1, 1]")
    if not MIN_RATE <= audio.rate <= MAX_RATE:
        limit = f"expected {MIN_RATE} to {MAX_RATE} Hz"
        raise InvalidInput("reference_sample_rate", audio.rate, limit)
    if not MIN_SECONDS <= audio.seconds <= MAX_SECONDS:
        _refuse(f"a recording of {_duration(audio)}", f"expected {MIN_SECONDS:g} to {MAX_SECONDS:g} s")
    _check_values(audio.samples)
    _check_loudness(audio.samples)


def _duration(audio: Audio) -> str:
    """The duration in seconds, or in samples where rounding would leave nothing or hide what is wrong."""
    seconds = round(audio.seconds, 2)
    if not seconds or MIN_SECONDS <= seconds <= MAX_SECONDS:
        count = len(audio.samples)
        return f"{count} sample{'s' if count > 1 else ''} at {audio.rate} Hz"
    return f"{seconds:.2f} s"


def _check_values(samples: Floats) -> None:
    bad = int((~np.isfinite(samples)).sum())
    if bad:
        _refuse(f"a recording with {bad} samples NaN or infinite", "expected finite ones in [-1, 1]")
    peak = float(np.abs(samples).max())
    if peak > PEAK_LIMIT:
        limit = "expected at most 1: numbers of 16 bits are divided by 32768"
        _refuse(f"a recording whose samples reach {peak:.5g}", limit)


def _check_loudness(samples: Floats) -> None:
    rms = float(samples.std())  # without the mean: a constant offset is silence
    if rms < SILENCE_RMS:
        limit = f"expected speech, with an RMS of at least {SILENCE_RMS:g} of full scale"
        _refuse(f"a recording of silence (RMS {rms:.2g})", limit)
    clipped = float((np.abs(samples) >= FULL_SCALE).mean())
    if clipped > MAX_CLIPPED:
        limit = f"expected at most {MAX_CLIPPED:.0%}; record it again at a lower level"
        _refuse(f"an overdriven recording, {clipped:.1%} of it at full scale", limit)


def _refuse(value: str, limit: str) -> None:
    raise InvalidInput("reference_wav", value, limit)
