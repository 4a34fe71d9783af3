"""Silence at the ends of a recording, and what is too long or too short."""

from __future__ import annotations

import logging
from io import BytesIO

import numpy as np
import pytest
import soundfile

from cosyvoice_client import InvalidArgumentError, read_reference
from sound_files import wav

RATE = 16_000


def voice(seconds: float, amplitude: float = 0.2):
    return (amplitude * np.random.default_rng(1).uniform(-1, 1, round(seconds * RATE))).astype(np.float32)


def silence(seconds: float, noise: float = 0.0):
    return voice(seconds, noise)


def read(*parts, text=""):
    return read_reference(wav(np.concatenate(parts), RATE), text, None, name="mine")


def seconds_of(*parts, text="") -> float:
    return len(read(*parts, text=text).samples) / RATE


def refusal(*parts, text="") -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        read(*parts, text=text)
    return str(caught.value)


@pytest.mark.parametrize("margins", [(0, 0), (0.2, 0.2), (0.05, 0.19)])
def test_recording_without_silence_stays_bit_for_bit(margins):
    parts = [silence(margins[0]), voice(1), silence(0.5), voice(1.003), silence(margins[1])]
    expected = (np.concatenate(parts) * 32767).astype("<i2").astype(np.float32) / 32768
    assert np.array_equal(read(*parts).samples, expected)


@pytest.mark.parametrize("noise", [0, 0.001])
def test_silence_at_the_ends_is_trimmed_to_a_margin(noise):
    parts = [silence(3, noise), voice(1), silence(1, noise), voice(1), silence(2, noise)]
    assert seconds_of(*parts) == pytest.approx(0.2 + 3 + 0.2, abs=0.02)
    start = 2.8 * RATE  # of what stays
    whole = (np.concatenate(parts) * 32767).astype("<i2").astype(np.float32) / 32768
    samples = read(*parts).samples
    assert np.array_equal(samples, whole[round(start) : round(start) + len(samples)])


def test_click_does_not_make_the_voice_silence():
    click = np.full(100, 0.9, np.float32)
    assert seconds_of(click, silence(1), voice(2, 0.01), silence(1)) == pytest.approx(3.2, abs=0.02)
    assert refusal(silence(1), click, silence(1)) == "mine: it is silent"


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_values_that_are_no_sound_are_left_for_the_server_to_refuse(value):
    samples = np.concatenate([silence(1), voice(1), silence(1)])
    samples[24_000] = value
    file = BytesIO()
    soundfile.write(file, samples, RATE, "FLOAT", format="WAV")
    assert not np.abs(read_reference(file.getvalue()).samples).max() <= 1


def test_quiet_end_of_a_word_stays():
    assert seconds_of(voice(1), voice(0.5, 0.004)) == 1.5


def test_constant_offset_is_silence():
    assert seconds_of(silence(2) + 0.3, voice(1) + 0.3, silence(2) + 0.3) == pytest.approx(1.4, abs=0.02)


@pytest.mark.parametrize("parts", [[silence(3)], [silence(3) + 0.5], [silence(99)], [silence(1, 0.001)]])
def test_silence_alone_says_so(parts):
    assert refusal(*parts) == "mine: it is silent"


def test_nothing_says_so():
    assert refusal(silence(0)) == "mine: it holds no sound"


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([voice(0.3)], "it lasts 0.30 s"),
        ([voice(0.4999)], "it lasts 0.49 s"),
        ([voice(0.001)], "it lasts 0.00 s"),
    ],
)
def test_short_recording_says_how_much_is_there(parts, says):
    assert refusal(*parts) == f"mine: {says}, and at least 0.5 s are needed"


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ([voice(31)], "it lasts 31.00 s"),
        ([voice(30.0001)], "it lasts 30.01 s"),
        ([silence(3), voice(40)], "it lasts 40.20 s between its silences, of 43.00 s"),
        ([voice(61)], "it lasts more than 60 s"),
    ],
)
def test_long_recording_with_its_words_is_refused(parts, says):
    assert refusal(*parts, text="Words.") == f"mine: {says}, and at most 30 s can go with a transcript"


def test_length_without_silence_counts():
    assert seconds_of(silence(5), voice(29), silence(5), text="Words.") == pytest.approx(29.4, abs=0.02)
    assert seconds_of(voice(30), text="Words.") == 30


def test_long_recording_without_words_ends_at_the_last_pause_that_is_in_time(caplog):
    parts = [voice(25), silence(0.5, 0.001), voice(3), silence(0.4, 0.003), voice(5), silence(0.5), voice(9)]
    with caplog.at_level(logging.WARNING):
        reference = read(*parts)
    assert 25.5 + 3 < len(reference.samples) / RATE < 25.5 + 3 + 0.4
    assert np.array_equal(reference.samples[: 25 * RATE], read(*parts[:1]).samples)
    used = f"{len(reference.samples) / RATE:.2f}"
    assert reference.note == f"it lasts 43.40 s, of which the first {used} s are used"
    assert caplog.messages == [f"mine: {reference.note}"]


@pytest.mark.parametrize("parts", [[voice(45)], [voice(9), silence(1), voice(40)], [voice(99)]])
def test_long_recording_without_a_pause_ends_at_thirty_seconds(parts):
    assert seconds_of(*parts) == 30


def test_what_is_short_enough_has_no_note(caplog):
    assert read(silence(5), voice(29), silence(5)).note == ""
    assert caplog.messages == []


def test_recording_of_a_telephone_comes_at_a_rate_that_the_server_reads():
    data = wav(voice(1), 8_000)
    assert (read_reference(data).rate, len(read_reference(data).samples)) == (16_000, 32_000)
    assert (read_reference(data, rate=None).rate, len(read_reference(data, rate=None).samples)) == (
        8_000,
        16_000,
    )
