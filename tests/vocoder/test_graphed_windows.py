"""Replayed calls of the vocoder against whole utterances."""

from __future__ import annotations

import pytest
import torch

from capture_fake import TracingCapture
from cosyvoice_runtime.vocoder.torch import context, source_noise
from cosyvoice_runtime.vocoder.torch.windows import GraphedWindows
from small_hift import OTHER, random_mel, small_hift, whole
from vocoder_calls import open_state, stream

ROUNDING = 1e-7
LONGEST = 60
AROUND = context(OTHER)
MOST_NEW = LONGEST - AROUND.left - AROUND.lookahead


@pytest.fixture(scope="module")
def capture() -> TracingCapture:
    return TracingCapture()


@pytest.fixture(scope="module")
def graphed(capture) -> GraphedWindows:
    graphed = GraphedWindows(small_hift(OTHER), (1, 3), (LONGEST,), capture)
    assert len(graphed) == 2
    return graphed


def test_replayed_windows_equal_whole_utterances(graphed, capture):
    chunks = [[20, 25, 0], [9, 30, 14], [25, 3, 2]]
    mels = [random_mel(sum(sizes), seed, OTHER) for seed, sizes in enumerate(chunks)]
    parts = [mel.split(sizes, dim=1) for mel, sizes in zip(mels, chunks, strict=True)]
    states = [open_state(OTHER, None if row == 1 else source_noise(row, OTHER.hop)) for row in range(3)]
    heard: list[list[torch.Tensor]] = [[], [], []]
    before = capture.replays
    for turn in range(3):
        now = [row[turn] for row in parts]
        for kept, wave in zip(
            heard, stream(small_hift(OTHER), states, now, [turn == 2] * 3, graphed), strict=True
        ):
            kept.append(wave)
    assert capture.replays == before + 3
    for row, (mel, waves) in enumerate(zip(mels, heard, strict=True)):
        expected = whole(small_hift(OTHER), mel, None if row == 1 else row)
        torch.testing.assert_close(torch.cat(waves), expected, atol=ROUNDING, rtol=0)


@pytest.mark.parametrize("lookahead", [None, 0])
def test_mel_longer_than_the_captured_windows_is_vocoded_in_several_calls(graphed, capture, lookahead):
    """A guess is made at the chunk's end alone, not where the calls meet."""
    frames = 2 * MOST_NEW + 3
    mels = [random_mel(2 * frames, 3, OTHER), random_mel(24, 4, OTHER)]
    heard = {}
    for how in (None, graphed):
        states = [open_state(OTHER, source_noise(row, OTHER.hop), lookahead) for row in range(2)]
        before = capture.replays
        waves = [
            stream(small_hift(OTHER), states, [mels[0][:, :frames], mels[1][:, :9]], [False] * 2, how),
            stream(small_hift(OTHER), states, [mels[0][:, frames:], mels[1][:, 9:]], [True] * 2, how),
        ]
        assert capture.replays == before + (6 if how else 0)
        heard[how] = [torch.cat(parts) for parts in zip(*waves, strict=True)]
    for row in range(2):
        torch.testing.assert_close(heard[graphed][row], heard[None][row], atol=ROUNDING, rtol=0)


def test_windows_that_hold_no_new_frame_are_refused(capture):
    frames = AROUND.left + AROUND.lookahead
    with pytest.raises(ValueError, match=f"windows of {frames} frames hold no new ones"):
        GraphedWindows(small_hift(OTHER), (1,), (frames,), capture)


def test_more_rows_than_captured_are_several_calls_and_fewer_come_after_more(graphed, capture):
    for rows, calls in ((3, 1), (2, 1), (5, 2), (1, 1)):
        mels = [random_mel(20 + row, row, OTHER) for row in range(rows)]
        states = [open_state(OTHER, source_noise(row, OTHER.hop)) for row in range(rows)]
        before = capture.replays
        waves = stream(small_hift(OTHER), states, mels, [True] * rows, graphed)
        assert capture.replays == before + calls
        for row, (mel, wave) in enumerate(zip(mels, waves, strict=True)):
            torch.testing.assert_close(wave, whole(small_hift(OTHER), mel, row), atol=ROUNDING, rtol=0)


def test_guessed_frames_equal_those_that_are_launched(graphed):
    mel = random_mel(40, 9, OTHER)
    heard = {}
    for how in (None, graphed):
        state = open_state(OTHER, source_noise(4, OTHER.hop), lookahead=0)
        parts = zip(mel.split([15, 15, 10], dim=1), (False, False, True), strict=True)
        waves = [stream(small_hift(OTHER), [state], [part], [last], how)[0] for part, last in parts]
        heard[how] = torch.cat(waves)
    torch.testing.assert_close(heard[graphed], heard[None], atol=ROUNDING, rtol=0)


def test_a_wide_window_does_not_widen_the_others(capture):
    narrow = AROUND.left + AROUND.lookahead + 10
    graphed = GraphedWindows(small_hift(OTHER), (1, 3), (narrow, LONGEST), capture)
    mels = [random_mel(frames, frames, OTHER) for frames in (8, 40, 9)]
    states = [open_state(OTHER, source_noise(row, OTHER.hop)) for row in range(3)]
    calls = []
    for size, window in graphed._windows.items():
        window.run = lambda states, windows, size=size, run=window.run: (
            calls.append(size),
            run(states, windows),
        )[1]
    waves = stream(small_hift(OTHER), states, mels, [True] * 3, graphed)
    assert sorted(calls) == [(1, LONGEST), (3, narrow)]
    for row, (mel, wave) in enumerate(zip(mels, waves, strict=True)):
        torch.testing.assert_close(wave, whole(small_hift(OTHER), mel, row), atol=ROUNDING, rtol=0)
