"""What a listener hears, in exact numbers."""

from __future__ import annotations

import pytest

from cosyvoice_client.timeline import Arrival, Timeline, silences


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        ([], []),
        ([(5.0, 1.0)], []),
        ([(0.5, 1.0), (1.5, 1.0)], []),  # the very moment the audio ends
        ([(0.5, 1.0), (1.0, 1.0), (2.5, 1.0)], []),  # a cushion of 0.5 s, used up
        ([(0.5, 1.0), (1.75, 1.0)], [0.25]),
        ([(0.5, 0.25), (1.0, 0.25), (1.5, 0.25)], [0.25, 0.25]),
        ([(0.5, 1.0), (2.0, 0.25), (2.25, 1.0), (3.5, 1.0)], [0.5, 0.25]),  # the first delays what follows
        ([(0.5, 1.0), (0.5, 1.0), (0.5, 1.0), (4.5, 1.0)], [1.0]),
    ],
)
def test_silences(arrivals, expected):
    assert silences(Arrival(*arrival) for arrival in arrivals) == expected


def test_starting_later_by_the_cushion_leaves_no_silence():
    timeline = Timeline([Arrival(0.5, 0.5), Arrival(1.25, 0.25), Arrival(1.5, 0.25), Arrival(2.5, 1.0)])
    assert timeline.cushion_s == 1.0
    later = [timeline.arrivals[0]._replace(at_s=0.5 + timeline.cushion_s), *timeline.arrivals[1:]]
    assert silences(later) == []


def test_empty_chunks_are_no_audio():
    timeline = Timeline()
    timeline.add(0.25, 0.0)
    assert timeline.ttfb_s is None
    timeline.add(0.5, 1.0)
    timeline.add(0.75, 0.0)
    timeline.add(1.25, 0.5)
    assert (timeline.ttfb_s, timeline.gaps_s, timeline.audio_s) == (0.5, [0.75], 1.5)
