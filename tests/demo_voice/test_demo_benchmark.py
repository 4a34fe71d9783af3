"""The benchmark of the demo voice counts what it says."""

from __future__ import annotations

import argparse
from collections import Counter

from demo_speech import likeness, tasks, word_errors
from demo_voice.training.speakers import HELD_OUT, TRAINING


def options(**values: object) -> argparse.Namespace:
    return argparse.Namespace(
        **{"first": 0, "sentences": 20, "likeness": 0, "speakers": list("abcd"), **values}
    )


def test_every_sentence_is_read_by_half_of_the_speakers_and_all_speakers_read_as_much() -> None:
    texts = [str(number) for number in range(20)]
    work = list(tasks(options(), texts))
    assert Counter(text for _, _, part in work for text in part) == dict.fromkeys(texts, 2)
    by_speaker: Counter[str] = Counter()
    for _, speaker, part in work:
        by_speaker[speaker] += len(part)
    assert set(by_speaker.values()) == {10}


def test_parts_read_what_the_whole_reads() -> None:
    texts = [str(number) for number in range(20)]
    parts = [*tasks(options(sentences=10), texts), *tasks(options(first=10), texts)]
    assert parts == list(tasks(options(), texts))


def test_likeness_is_tried_with_everybody() -> None:
    work = list(tasks(options(sentences=0, likeness=2), ["a", "b", "c"]))
    assert [speaker for _, speaker, _ in work] == [speaker.name for speaker in (*TRAINING, *HELD_OUT)]
    assert all(part == ["b", "c"] for _, _, part in work)


def test_rates_are_over_all_rows() -> None:
    rows = [
        {"speaker": "a", "words": 6, "teacher_errors": 1, "streamed_errors": 2, "offline_errors": 3}
        | {"encoder": "a", "timbre": "b", "teacher_encoder": "a", "teacher_timbre": "a"},
        {"speaker": "b", "words": 4, "teacher_errors": 0, "streamed_errors": 2, "offline_errors": 0}
        | {"encoder": "b", "timbre": "b", "teacher_encoder": "a", "teacher_timbre": "b"},
    ]
    assert word_errors(rows) == {"teacher": 0.1, "streamed": 0.4, "offline": 0.3}
    assert likeness(rows) == {
        "trials": 2,
        "encoder": 1.0,
        "timbre": 0.5,
        "teacher_encoder": 0.5,
        "teacher_timbre": 1.0,
    }
