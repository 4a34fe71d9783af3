"""What a request leaves in the metrics, by a clock that stands still between the lines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cosyvoice_runtime.engine.utterance.request import AudioChunk
from cosyvoice_runtime.engine.utterance.utterance import Playback
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.metrics.page import read_samples
from cosyvoice_runtime.serving.speech.speech_metrics import RequestTimer, SpeechMetrics
from standing_clock import StandingClock


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


@pytest.fixture
def metrics(clock: StandingClock, tmp_path: Path) -> SpeechMetrics:
    return SpeechMetrics(Metrics("cosyvoice2", tmp_path), clock)


@pytest.fixture
def timer(metrics: SpeechMetrics, clock: StandingClock) -> RequestTimer:
    return RequestTimer(metrics, Playback(clock))


def shown(directory: Path) -> dict[str, float]:
    """Numbers by name and label, without those that are zero and without buckets."""
    found = {}
    for sample in read_samples(directory):
        labels = [text for label, text in sample.labels.items() if label != "model"]
        name = " ".join([sample.name.removeprefix("cosyvoice_"), *labels])
        if sample.value and "le" not in sample.labels:
            found[name] = sample.value
    return found


def test_request_is_timed_from_its_arrival_and_counted_when_it_ends(timer, clock, tmp_path):
    clock.time += 0.25
    with timer:
        assert shown(tmp_path) == {"inflight_utterances": 1}
        clock.time += 0.5
        timer.sent(1.0)
        clock.time += 0.25
        timer.sent(3.0)
    assert shown(tmp_path) == {
        "first_audio_seconds_sum": 0.75,
        "first_audio_seconds_count": 1,
        "real_time_factor_sum": 1.0 / 4.0,
        "real_time_factor_count": 1,
        "requests_total completed": 1,
        "audio_seconds_total": 4.0,
    }


def test_audio_and_underruns_count_while_the_request_runs(timer, clock, tmp_path):
    with timer:
        timer.sent(1.0)
        running = shown(tmp_path)
        assert (running["audio_seconds_total"], running["first_audio_seconds_count"]) == (1, 1)
        assert "underruns_total" not in running
        clock.time += 2
        timer.sent(0.5)
        running = shown(tmp_path)
        assert (running["audio_seconds_total"], running["underruns_total"]) == (1.5, 1)
        timer.sent(0.5)
        assert shown(tmp_path)["underruns_total"] == 1


def test_late_chunk_is_an_underrun_and_an_empty_one_is_not(timer, clock, tmp_path):
    with timer:
        timer.sent(0.0)
        clock.time += 1
        timer.sent(1.0)
        clock.time += 3
        timer.sent(0.0)
        timer.sent(1.0)
    after = shown(tmp_path)
    assert (after["underruns_total"], after["first_audio_seconds_sum"]) == (1, 1.0)


def test_speech_is_heard_behind_the_silence_that_is_sent_before_it(timer, clock, tmp_path):
    silence, speech = np.zeros(24_000, np.float32), np.resize(np.float32([0.1, -0.1]), 12_000)
    with timer:
        clock.time += 0.5
        for samples in (silence, np.concatenate([silence[:12_000], speech]), speech):
            timer.made(AudioChunk(samples, 24_000, 0))
            timer.sent(len(samples) / 24_000)
            clock.time += 0.25
    after = shown(tmp_path)
    assert (after["first_audio_seconds_sum"], after["first_audible_seconds_count"]) == (0.5, 1)
    # The first window that is heard begins 10 ms before the speech.
    assert after["first_audible_seconds_sum"] == pytest.approx(0.5 + 1.5 - 0.01)


def test_playback_of_the_request_learns_what_was_sent(timer, clock):
    timer.sent(1.5)
    clock.time += 0.5
    assert timer.playback.cushion_s == 1.0


def test_request_that_broke_off_keeps_its_audio_and_has_no_real_time_factor(timer, tmp_path):
    def break_off() -> None:
        with timer:
            timer.sent(2.0)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        break_off()
    assert shown(tmp_path) == {
        "first_audio_seconds_count": 1,
        "requests_total failed": 1,
        "audio_seconds_total": 2.0,
    }


def test_request_without_audio_is_counted_and_not_timed(timer, tmp_path):
    with timer:
        pass
    assert shown(tmp_path) == {"requests_total completed": 1}


def test_lookups_are_hits_or_misses(metrics, tmp_path):
    for hit in (True, False, True):
        metrics.voice_looked_up(hit)
    assert shown(tmp_path) == {"voice_lookups_total hit": 2, "voice_lookups_total miss": 1}


def test_a_silence_of_the_text_is_no_speech(timer, clock, tmp_path):
    with timer:
        timer.sent(0.1, 0.0)
        assert shown(tmp_path) == {"inflight_utterances": 1}
        clock.time += 0.5
        assert not timer.sent(1.0, 1.0)
        timer.sent(2.0, 0.0)
        clock.time += 3
        assert not timer.sent(1.0, 1.0)
    after = shown(tmp_path)
    assert (after["first_audio_seconds_sum"], after["first_audio_seconds_count"]) == (0.5, 1)
    assert (after["audio_seconds_total"], after["real_time_factor_sum"]) == (2.0, 3.5 / 2.0)
    assert "underruns_total" not in after


def test_silences_of_an_answer_in_one_are_no_speech(timer, clock, tmp_path):
    with timer:
        clock.time += 1
        timer.sent(5.0, 2.0)
    after = shown(tmp_path)
    assert (after["audio_seconds_total"], after["real_time_factor_sum"]) == (2.0, 0.5)
