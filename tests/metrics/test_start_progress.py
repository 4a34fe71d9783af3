"""How far a model's start is, in the log and in the metrics."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.metrics.page import read_progress, read_samples
from cosyvoice_runtime.metrics.progress import DONE, STEPS, StartProgress


def test_the_log_tells_every_ten_seconds_and_the_page_always(tmp_path: Path, caplog):
    caplog.set_level(logging.INFO)
    times = itertools.count(0.0, 4.0)
    progress = StartProgress(Metrics("token2wav", tmp_path), "captured", "calls", 8, lambda: next(times))
    for _ in range(6):
        progress()
    told = [record.getMessage() for record in caplog.records]
    assert told == ["captured 3 of 8 calls, about 20 s left", "captured 6 of 8 calls, about 8 s left"]
    assert read_progress(tmp_path) == {"token2wav": "6 of 8 calls"}
    shown = {sample.name: sample.value for sample in read_samples(tmp_path)}
    assert (shown[DONE], shown[STEPS]) == (6, 8)


def test_pieces_of_work_that_are_found_later_count(tmp_path: Path):
    progress = StartProgress(Metrics("token2wav", tmp_path), "compiled", "kernels", 0)
    for found in (3, 3, 5):
        progress.grow(found)
        progress()
    assert read_progress(tmp_path) == {"token2wav": "3 of 5 kernels"}
