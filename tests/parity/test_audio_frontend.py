"""Resampling and the three feature extractors against the reference's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from goldens import Case, cases, tensors

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio import mel
from cosyvoice_runtime.audio.audio import EXTRACTOR_SAMPLE_RATE
from cosyvoice_runtime.audio.mel import (
    centred_fbank,
    fbank,
    log_mel_spectrogram,
    mel_spectrogram,
    slaney_filters,
)
from cosyvoice_runtime.audio.resample import resample

if TYPE_CHECKING:
    from goldens import Compare

TOLERANCE = 1e-4
RESAMPLE_TOLERANCE = 1e-5
FRONTEND = [case for case in cases("audio_frontend") if "wav16k" in case]
RESAMPLED = [
    pytest.param(case, name, id=f"{case}-{name}")
    for case in FRONTEND
    for name in case.tensors
    if name.startswith("resample_")
]

# The reference reads the start of wav24k as if it were 44.1 kHz audio.
PRETENDED_RATE_SAMPLES = 20_000


@pytest.mark.parametrize("case", FRONTEND, ids=str)
def test_mel_equals_reference(case: Case, compare: Compare) -> None:
    compare("mel24k", mel_spectrogram(case["wav24k"][0].numpy()).T[None], case["mel24k"], TOLERANCE)


@pytest.mark.parametrize("case", FRONTEND, ids=str)
def test_log_mel_equals_reference(case: Case, compare: Compare) -> None:
    compare("whisper128", log_mel_spectrogram(case["wav16k"][0].numpy())[None], case["whisper128"], TOLERANCE)


@pytest.mark.parametrize("case", FRONTEND, ids=str)
def test_fbank_equals_reference(case: Case, compare: Compare) -> None:
    compare("fbank80", fbank(case["wav16k"][0].numpy()), case["fbank80"], TOLERANCE)
    compare("fbank80_cmn", centred_fbank(case["wav16k"][0].numpy()), case["fbank80_cmn"], TOLERANCE)


def test_filters_equal_reference(compare: Compare) -> None:
    expected = tensors("audio_frontend")
    mel_filters = slaney_filters(24_000, 1920, mel.MelFormat().bins, 8000.0)
    compare("mel24k", mel_filters, expected["filters.mel24k"], 1e-7)
    log_mel_filters = slaney_filters(
        EXTRACTOR_SAMPLE_RATE, mel.LOG_MEL_WINDOW, mel.LOG_MEL_BINS, mel.LOG_MEL_HIGH_HZ
    )
    compare("whisper128", log_mel_filters, expected["filters.whisper128"], 1e-7)


@pytest.mark.parametrize(("case", "name"), RESAMPLED)
def test_resampling_equals_reference(case: Case, name: str, compare: Compare) -> None:
    rate, new_rate = _rates(name)
    compare(name, resample(_source(case, rate), rate, new_rate)[None], case[name], RESAMPLE_TOLERANCE)


def _rates(name: str) -> tuple[int, int]:
    """``resample_16_to_24`` gives kHz, ``resample_44100_to_16000`` gives Hz."""
    found = [int(number) for number in re.findall(r"\d+", name)]
    rate, new_rate = (number if number >= 1000 else 1000 * number for number in found)
    return rate, new_rate


def _source(case: Case, rate: int) -> Floats:
    if rate in (16_000, 24_000):
        return case[f"wav{rate // 1000}k"][0].numpy()
    return case["wav24k"][0, :PRETENDED_RATE_SAMPLES].numpy()
