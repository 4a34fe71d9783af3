from __future__ import annotations

import numpy as np
import pytest
from audio_signals import noise, tone

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio.audio import Audio, check_reference, reference_audio
from cosyvoice_runtime.errors import InvalidInput

RATE = 16_000
SPEECH = noise(RATE)


def refusal(samples: Floats, rate: int = RATE, length: int | None = None) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        reference_audio(samples, rate, length)
    return caught.value


def with_samples(indices: slice, value: float) -> Floats:
    samples = SPEECH.copy()
    samples[indices] = value
    return samples


@pytest.mark.parametrize(
    ("samples", "value", "limit"),
    [
        (noise(1), "a recording of 1 sample at 16000 Hz", "expected 0.5 to 30 s"),
        (noise(RATE // 5), "0.20 s", "expected 0.5 to 30 s"),
        (noise(RATE // 2 - 1), "7999 samples at 16000 Hz", "expected 0.5 to 30 s"),
        (noise(30 * RATE + 1), "480001 samples at 16000 Hz", "expected 0.5 to 30 s"),
        (noise(31 * RATE), "31.00 s", "expected 0.5 to 30 s"),
        (with_samples(slice(3, 5), float("nan")), "2 samples NaN or infinite", "finite"),
        (with_samples(slice(3, 4), float("inf")), "1 samples NaN or infinite", "finite"),
        (with_samples(slice(7, 8), -20412.0), "samples reach 20412", "divided by 32768"),
        (np.zeros(RATE, np.float32), "silence (RMS 0)", "at least 0.001"),
        (np.full(RATE, 0.5, np.float32), "silence (RMS 0)", "at least 0.001"),
        (SPEECH * 5e-3, "silence (RMS 0.0005)", "at least 0.001"),
        (np.clip(10 * tone(200, 1.0, RATE), -1, 1), "% of it at full scale", "at most 5%"),
        ((SPEECH * 32767).astype(np.int16), "int16", "expected floats in [-1, 1]"),
        (np.zeros(0, np.float32), "(0,)", "[n] or [channels, n]"),
        (np.zeros((1, 1, RATE), np.float32), "(1, 1, 16000)", "[n] or [channels, n]"),
    ],
)
def test_unusable_audio_is_refused_with_value_and_limit(samples: Floats, value: str, limit: str) -> None:
    error = refusal(samples)
    assert error.field == "reference_wav"
    assert value in error.value
    assert limit in error.limit


@pytest.mark.parametrize("rate", [0, 7_999, 192_001])
def test_sample_rate_outside_the_limits_is_refused(rate: int) -> None:
    error = refusal(SPEECH, rate)
    assert (error.field, error.value) == ("reference_sample_rate", str(rate))
    assert "8000 to 192000" in error.limit


@pytest.mark.parametrize("length", [-1, 0, RATE + 1])
def test_length_beyond_the_samples_is_refused(length: int) -> None:
    error = refusal(SPEECH, length=length)
    assert (error.field, error.value) == ("reference_wav_len", str(length))
    assert "16000 samples" in error.limit


def test_samples_beyond_the_length_do_not_count() -> None:
    padded = np.concatenate([SPEECH, np.full(100, np.nan, np.float32)])
    assert np.array_equal(reference_audio(padded, RATE, RATE).samples, SPEECH)


def test_channels_are_averaged() -> None:
    stereo = np.stack([SPEECH, 3 * SPEECH])
    assert np.allclose(reference_audio(stereo, RATE).samples, 2 * SPEECH)


def test_row_of_one_channel_is_mono() -> None:
    assert np.array_equal(reference_audio(SPEECH[None], RATE).samples, SPEECH)


def test_recording_of_a_telephone_is_accepted() -> None:
    check_reference(Audio(SPEECH, 8_000))


@pytest.mark.parametrize("seconds", [0.5, 30.0])
def test_the_limits_themselves_are_accepted(seconds: float) -> None:
    check_reference(Audio(noise(round(seconds * RATE)), RATE))


def test_occasional_full_scale_and_codec_overshoot_are_accepted() -> None:
    check_reference(Audio(with_samples(slice(0, RATE, 50), 1.2), RATE))
