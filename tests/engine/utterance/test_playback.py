from __future__ import annotations

from cosyvoice_runtime.engine.utterance.utterance import UNHEARD_S, Playback
from standing_clock import StandingClock


def test_cushion_is_what_was_sent_less_what_was_played():
    clock = StandingClock()
    playback = Playback(clock)
    assert playback.cushion_s == 0.0
    playback.sent(2.0)
    clock.time += 0.5
    assert playback.cushion_s == 1.5
    playback.sent(1.0)
    assert playback.cushion_s == 2.5
    assert playback.underruns == 0


def test_late_chunk_is_one_underrun_and_playing_goes_on_from_it():
    clock = StandingClock()
    playback = Playback(clock)
    playback.sent(1.0)
    clock.time += 3.0
    assert playback.cushion_s == 0.0
    playback.sent(1.0)
    assert playback.underruns == 1
    assert playback.cushion_s == 1.0


def test_pause_that_nobody_notices_is_no_underrun():
    clock = StandingClock()
    playback = Playback(clock)
    playback.sent(1.0)
    clock.time += 1.0 + 0.9 * UNHEARD_S
    playback.sent(1.0)
    assert playback.underruns == 0
    clock.time += 1.0 + 0.9 * UNHEARD_S
    playback.sent(1.0)
    assert playback.underruns == 1, "but pauses add up"
    clock.time += 1.0 + 0.9 * UNHEARD_S
    playback.sent(1.0)
    assert playback.underruns == 1
