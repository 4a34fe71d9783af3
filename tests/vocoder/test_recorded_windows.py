"""Replayed calls of the vocoder against whole utterances."""

from __future__ import annotations

import pytest
import torch
from small_hift import OTHER, random_mel, small_hift, whole

from cosyvoice_runtime.vocoder import SourceNoise, VocoderState, stream
from cosyvoice_runtime.vocoder.recorded_windows import RecordedWindows
from recorder_fake import TracingRecorder

ROUNDING = 1e-7
LONGEST = 60


@pytest.fixture(scope="module")
def recorder() -> TracingRecorder:
    return TracingRecorder()


@pytest.fixture(scope="module")
def recorded(recorder) -> RecordedWindows:
    recorded = RecordedWindows(small_hift(OTHER), (1, 3), (LONGEST,), recorder)
    assert len(recorded) == 2
    return recorded


def test_replayed_windows_equal_whole_utterances(recorded, recorder):
    chunks = [[20, 25, 0], [9, 30, 14], [25, 3, 2]]
    mels = [random_mel(sum(sizes), seed, OTHER) for seed, sizes in enumerate(chunks)]
    parts = [mel.split(sizes, dim=1) for mel, sizes in zip(mels, chunks, strict=True)]
    states = [VocoderState(OTHER, None if row == 1 else SourceNoise(row, OTHER.hop)) for row in range(3)]
    heard: list[list[torch.Tensor]] = [[], [], []]
    before = recorder.replays
    for turn in range(3):
        now = [row[turn] for row in parts]
        for kept, wave in zip(
            heard, stream(small_hift(OTHER), states, now, [turn == 2] * 3, recorded), strict=True
        ):
            kept.append(wave)
    assert recorder.replays == before + 3
    for row, (mel, waves) in enumerate(zip(mels, heard, strict=True)):
        expected = whole(small_hift(OTHER), mel, None if row == 1 else row)
        torch.testing.assert_close(torch.cat(waves), expected, atol=ROUNDING, rtol=0)


def test_windows_longer_than_the_recordings_are_computed_as_before(recorded, recorder):
    mel = random_mel(LONGEST + 1, config=OTHER)
    before = recorder.replays
    [wave] = stream(small_hift(OTHER), [VocoderState(OTHER)], [mel], [True], recorded)
    assert recorder.replays == before
    torch.testing.assert_close(wave, whole(small_hift(OTHER), mel), atol=ROUNDING, rtol=0)


def test_more_rows_than_recorded_are_several_calls_and_fewer_come_after_more(recorded, recorder):
    for rows, calls in ((3, 1), (2, 1), (5, 2), (1, 1)):
        mels = [random_mel(20 + row, row, OTHER) for row in range(rows)]
        states = [VocoderState(OTHER, SourceNoise(row, OTHER.hop)) for row in range(rows)]
        before = recorder.replays
        waves = stream(small_hift(OTHER), states, mels, [True] * rows, recorded)
        assert recorder.replays == before + calls
        for row, (mel, wave) in enumerate(zip(mels, waves, strict=True)):
            torch.testing.assert_close(wave, whole(small_hift(OTHER), mel, row), atol=ROUNDING, rtol=0)


def test_long_window_does_not_keep_others_from_their_recording(recorded, recorder):
    mels = [random_mel(frames, frames, OTHER) for frames in (LONGEST + 1, 12)]
    before = recorder.replays
    waves = stream(small_hift(OTHER), [VocoderState(OTHER) for _ in mels], mels, [True] * 2, recorded)
    assert recorder.replays == before + 1
    for mel, wave in zip(mels, waves, strict=True):
        torch.testing.assert_close(wave, whole(small_hift(OTHER), mel), atol=ROUNDING, rtol=0)


def test_guessed_frames_equal_those_that_are_launched(recorded):
    mel = random_mel(40, 9, OTHER)
    heard = {}
    for how in (None, recorded):
        state = VocoderState(OTHER, SourceNoise(4, OTHER.hop), lookahead=0)
        parts = zip(mel.split([15, 15, 10], dim=1), (False, False, True), strict=True)
        waves = [stream(small_hift(OTHER), [state], [part], [last], how)[0] for part, last in parts]
        heard[how] = torch.cat(waves)
    torch.testing.assert_close(heard[recorded], heard[None], atol=ROUNDING, rtol=0)
