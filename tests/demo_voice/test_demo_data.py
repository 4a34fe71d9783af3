"""What the demo voice is trained on."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from demo_voice.training.f0 import track_f0
from demo_voice.training.readings import Readings
from demo_voice.training.sentences import definitions, number_words, sentences, wordnet_examples

GLOSSES = (
    '00001740 03 n 01 entity 0 003 | that which exists; "the air was heavy"; "how did they find it"\n'
    '00001741 03 n 01 thing 0 003 | a thing; "he paid $5"; "one word"; "they came home, tired and late"\n'
)


@pytest.fixture
def wordnet(tmp_path: Path) -> Path:
    for part in ("adj", "adv", "noun", "verb"):
        (tmp_path / f"data.{part}").write_text(GLOSSES, encoding="latin-1")
    return tmp_path


def test_examples_are_speakable_sentences(wordnet: Path) -> None:
    assert set(wordnet_examples(wordnet)) == {
        "The air was heavy.",
        "How did they find it?",
        "They came home, tired and late.",
    }


def test_definitions_come_without_examples_and_too_short_ones_not_at_all(wordnet: Path) -> None:
    assert list(definitions(0, wordnet)) == ["That which exists."]


def test_readings_survive_being_kept_and_joined(tmp_path: Path) -> None:
    counts, codes = np.array([2, 3]), np.arange(5, dtype=np.int16)
    readings = Readings(np.array([0, 7], np.int16), ["One, two.", "Where is it?"], counts, codes)
    readings.save(tmp_path / "readings.npz")
    joined = Readings.joined([readings, Readings.load(tmp_path / "readings.npz")])
    assert joined.texts == 2 * readings.texts
    for name in ("speaker", "count", "codes"):
        both = np.concatenate([getattr(readings, name)] * 2)
        np.testing.assert_array_equal(getattr(joined, name), both)


def test_the_same_seed_gives_the_same_sentences_without_repetition(wordnet: Path) -> None:
    first = list(islice(sentences(3, wordnet, generated_share=0.9), 20))
    assert first == list(islice(sentences(3, wordnet, generated_share=0.9), 20))
    assert len(set(first)) == len(first)
    assert first != list(islice(sentences(4, wordnet, generated_share=0.9), 20))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (17, "seventeen"),
        (42, "forty-two"),
        (300, "three hundred"),
        (2101, "two thousand one hundred one"),
    ],
)
def test_numbers_are_words(number: int, words: str) -> None:
    assert number_words(number) == words


@pytest.mark.parametrize("hz", [80.0, 130.0, 240.0])
def test_f0_of_a_voice_like_tone_is_its_pitch(hz: float) -> None:
    time = torch.arange(24_000) / 24_000
    tone = sum(torch.sin(2 * torch.pi * hz * k * time) / k for k in range(1, 6))
    f0 = track_f0(0.1 * tone)
    assert f0.shape == (50,)
    assert (f0[3:-3] - hz).abs().max() < 1.5


def test_silence_and_noise_have_no_f0() -> None:
    assert track_f0(torch.zeros(9600)).abs().max() == 0
    noise = 0.05 * torch.randn(24_000, generator=torch.Generator().manual_seed(0))
    assert (track_f0(noise) > 0).float().mean() < 0.1
