"""The measures of the demo voice see what they are for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from measuring import joins
from measuring.heard import distance, words


def voice(pitch_hz: float, tilt: float, seconds: float = 1.0, rate: int = 24_000) -> Tensor:
    """A buzz with harmonics, swelling four times a second."""
    time = torch.arange(round(seconds * rate)) / rate
    buzz = sum(torch.sin(2 * torch.pi * pitch_hz * k * time) / k**tilt for k in range(1, 20))
    return 0.1 * buzz * (1.2 + torch.sin(2 * torch.pi * 4 * time))


def rough(clean: Tensor) -> Tensor:
    """With a little noise, as speech is never the same twice."""
    return clean + 0.02 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("said", "heard", "errors"),
    [("One, two!", "one two", 0), ("one two three", "one three", 1), ("one", "won a", 2), ("", "one", 1)],
)
def test_word_errors_count_insertions_deletions_and_substitutions(said: str, heard: str, errors: int) -> None:
    assert distance(words(said), words(heard)) == errors


def test_a_click_at_a_join_shows_there_and_nowhere_else() -> None:
    join = 12_000
    clean = voice(120.0, 1.0)
    clicked = clean.clone()
    clicked[join : join + 24] += 3.0
    for measure in (joins.changes, joins.spikes):
        before, _ = joins.at_and_elsewhere(measure(clean), [join])
        after, elsewhere = joins.at_and_elsewhere(measure(clicked), [join])
        assert after[0] > before[0]
        assert after[0] > max(elsewhere)


def test_a_burst_at_the_end_is_louder_than_silence() -> None:
    spoken = torch.cat([voice(120.0, 1.0), torch.zeros(2400)])
    burst = spoken.clone()
    burst[-200:] = 0.5
    assert joins.end_level(spoken) < -40
    assert joins.end_level(burst) > -10


def test_timbres_tell_voices_apart_by_pitch_and_colour() -> None:
    from measuring.timbre import Timbres

    speakers = {"low": (90.0, 1.0), "high": (220.0, 1.0), "bright": (90.0, 0.3), "dull": (220.0, 2.0)}
    known = {
        name: [rough(voice(pitch * shift, tilt, rate=16_000)) for shift in (0.9, 0.95, 1.0, 1.05, 1.1)]
        for name, (pitch, tilt) in speakers.items()
    }
    timbres = Timbres(known)
    for name, (pitch, tilt) in speakers.items():
        assert timbres.nearest(rough(voice(1.02 * pitch, tilt, 1.3, 16_000)), list(speakers)) == name
