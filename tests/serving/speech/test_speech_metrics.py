"""What a request leaves in the metrics, by a clock that stands still between the lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosyvoice_runtime.metrics import Metrics, read_series
from cosyvoice_runtime.serving.speech.speech_metrics import Course, Ending, SpeechMetrics


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock, tmp_path: Path) -> SpeechMetrics:
    def ending_of(error: BaseException | None) -> Ending:
        return Ending.FAILED if error else Ending.COMPLETED

    return SpeechMetrics(Metrics("cosyvoice2", tmp_path), ending_of, clock)


def shown(directory: Path) -> dict[str, list[float]]:
    """Numbers by name and last label's text, without those that are zero."""
    found = {}
    for series, numbers in read_series(directory).items():
        labels = [text for label, text in series.labels if label != "model"]
        name = " ".join([series.name.removeprefix("cosyvoice_"), *labels])
        if any(numbers):
            found[name] = numbers
    return found


def test_request_is_timed_from_its_arrival_and_counted_when_it_ends(metrics, clock, tmp_path):
    course = Course(metrics)
    clock.time += 0.25
    with course:
        assert shown(tmp_path) == {"inflight_utterances": [1]}
        clock.time += 0.5
        course.sent(1.0)
        clock.time += 0.25
        course.sent(3.0)
    after = shown(tmp_path)
    first, factor = after.pop("first_audio_seconds"), after.pop("real_time_factor")
    assert (first[0], sum(first[1:])) == (0.75, 1)
    assert (factor[0], sum(factor[1:])) == (1.0 / 4.0, 1)
    assert after == {"requests_total completed": [1], "audio_seconds_total": [4.0]}


def test_late_chunk_is_an_underrun_and_an_empty_one_is_not(metrics, clock, tmp_path):
    with Course(metrics) as course:
        course.sent(0.0)
        clock.time += 1
        course.sent(1.0)
        clock.time += 3
        course.sent(0.0)
        course.sent(1.0)
    after = shown(tmp_path)
    assert after["underruns_total"] == [1]
    assert after["first_audio_seconds"][0] == 1.0


def test_request_that_broke_off_has_no_real_time_factor(metrics, tmp_path):
    course = Course(metrics).__enter__()
    course.sent(2.0)
    course.__exit__(ValueError, ValueError("broken"), None)
    after = shown(tmp_path)
    assert after.keys() == {"first_audio_seconds", "requests_total failed", "audio_seconds_total"}


def test_request_without_audio_is_counted_and_not_timed(metrics, tmp_path):
    with Course(metrics):
        pass
    assert shown(tmp_path) == {"requests_total completed": [1]}


def test_lookups_are_hits_or_misses(metrics, tmp_path):
    for hit in (True, False, True):
        metrics.voice_looked_up(hit)
    assert shown(tmp_path) == {"voice_lookups_total hit": [2], "voice_lookups_total miss": [1]}
