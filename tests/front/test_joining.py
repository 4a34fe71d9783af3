"""Speech of the same tokens whose waves differ: it is joined where it sounds alike, without a step."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cosyvoice_client import AudioChunk
from cosyvoice_front.joining import sound_alike
from cosyvoice_front.resume import DifferentSpeechError, HeardSpeech

RATE = 24_000
FIRST = 36_000
"""Samples that were heard."""
TOKENS = list(range(75))


def voice(pitch_hz: float = 120.0, drift: float = 0.0, syllables: int = 1) -> np.ndarray:
    """Three seconds of vowels whose pitch glides; the drift makes it a little higher, so that phases part."""
    time = np.arange(3 * RATE) / RATE
    pitch = pitch_hz * (1 + drift) * (1 + 0.1 * np.sin(2 * np.pi * 0.7 * time))
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    formant = 700 + 400 * np.sin(2 * np.pi * syllables * time)
    waves = sum(
        np.exp(-(((number * pitch - formant) / 300) ** 2)) * np.sin(number * phase) for number in range(1, 25)
    )
    return (0.2 * waves * (1.1 + np.cos(2 * np.pi * 3 * syllables * time))).astype(np.float32)


def chunks(samples: np.ndarray, size: int, tokens: list[int] = TOKENS) -> list[AudioChunk]:
    """Chunks of a size, of which the first has all tokens and the last is the end of its segment."""
    parts = [AudioChunk(samples[at : at + size], 0.0) for at in range(0, len(samples), size)]
    parts[0] = dataclasses.replace(parts[0], spoken_tokens=tokens)
    parts[-1] = dataclasses.replace(parts[-1], finish_reason="stop")
    return parts


def gone_on(again: list[AudioChunk], heard: np.ndarray) -> list[AudioChunk]:
    """The samples of a repetition that a listener gets who has heard so much."""
    speech = HeardSpeech()
    for chunk in chunks(heard, 12_000)[: FIRST // 12_000]:
        speech.new(chunk)
    speech.begin_again()
    sent = [new for chunk in again if (new := speech.new(chunk)) is not None]
    speech.end()
    assert speech.samples == FIRST + sum(len(chunk.samples) for chunk in sent)
    return sent


@pytest.mark.parametrize("size", [1_000, 12_000, 17_000, 80_000])
@pytest.mark.parametrize("drift", [1e-4, -1e-3, 2e-3])
def test_waves_that_part_are_joined_without_a_step(size, drift):
    heard, again = voice(), voice(drift=drift)
    assert np.abs(heard - again)[:FIRST].max() > 0.02
    sent = gone_on(chunks(again, size), heard)
    rest = np.concatenate([chunk.samples for chunk in sent])
    assert abs(len(rest) - (len(heard) - FIRST)) <= RATE // 100
    whole = np.concatenate([heard[:FIRST], rest])
    steps = np.abs(np.diff(whole))[FIRST - 500 : FIRST + 500]
    assert steps.max() <= 1.2 * np.abs(np.diff(heard))[FIRST - 1_000 : FIRST + 1_000].max()
    assert [chunk.finish_reason for chunk in sent if chunk.finish_reason] == ["stop"]


@pytest.mark.parametrize("other", [voice(180.0), voice(syllables=2), voice()[::-1].copy(), 0 * voice()])
def test_what_sounds_otherwise_is_not_joined_though_its_tokens_are_the_same(other):
    assert not sound_alike(voice()[FIRST - 12_000 : FIRST], other[FIRST - 12_000 : FIRST], RATE)
    with pytest.raises(DifferentSpeechError):
        gone_on(chunks(other, 12_000), voice())


@pytest.mark.parametrize("tokens", [[], [7, *TOKENS[1:]]])
def test_what_sounds_alike_is_not_joined_if_its_tokens_are_others(tokens):
    with pytest.raises(DifferentSpeechError):
        gone_on(chunks(voice(drift=1e-3), 12_000, tokens), voice())


@pytest.mark.parametrize("first", [3, 5, 7])
def test_loss_soon_after_a_shift_is_joined_too(first):
    """Both repetitions are the same speech, 3 ms later; the second is asked for 0.2 s after the first."""
    heard = voice(syllables=3)
    again = np.concatenate([np.zeros(72, np.float32), heard])[: len(heard)]
    speech = HeardSpeech()
    for chunk in chunks(heard, 4_800)[:first]:
        speech.new(chunk)
    for part in (chunks(again, 4_800)[: first + 1], chunks(again, 4_800)):
        speech.begin_again()
        sent = [new for chunk in part if (new := speech.new(chunk)) is not None]
        assert sum(len(chunk.samples) for chunk in sent) > 4_000
    speech.end()
    assert abs(speech.samples - len(heard)) <= RATE // 100
