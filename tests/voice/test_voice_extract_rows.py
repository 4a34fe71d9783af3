"""Extraction of several references, each of which may fail alone."""

from __future__ import annotations

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.voice.extractors import extract_rows

STAGE = "speaker_encoder"


class Means:
    """The mean of each waveform; one that starts with 9 breaks the batch it is in."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def __call__(self, waveforms: list[Floats]) -> list[Floats]:
        self.batches.append(len(waveforms))
        if any(waveform[0] == 9 for waveform in waveforms):
            raise RuntimeError("broken")
        return [waveform.mean(keepdims=True) for waveform in waveforms]


def audio(*samples: float) -> Audio:
    return Audio(np.array(samples, np.float32), 16000)


def test_recordings_are_one_batch_and_errors_stay_in_their_rows():
    extract, error = Means(), InvalidInput("reference_wav", "silence", "speech")
    rows = extract_rows(extract, [audio(1, 3), error, audio(4, 4, 4)], STAGE)
    assert [rows[0].item(), rows[1], rows[2].item()] == [2, error, 4]
    assert extract.batches == [2]


def test_row_that_breaks_the_batch_fails_alone():
    extract = Means()
    rows = extract_rows(extract, [audio(1), audio(9), audio(3)], STAGE)
    assert [rows[0].item(), str(rows[1]), rows[2].item()] == [1, "broken", 3]
    assert extract.batches == [3, 1, 1, 1]


def test_not_a_number_fails_its_row():
    good, bad = extract_rows(Means(), [audio(1), audio(float("nan"))], STAGE)
    assert good.item() == 1
    assert str(bad) == "speaker_encoder: NaN or infinity in the speaker embedding"


def test_no_good_recording_runs_nothing():
    extract, error = Means(), ValueError("x")
    assert extract_rows(extract, [error], STAGE) == [error]
    assert extract.batches == []
