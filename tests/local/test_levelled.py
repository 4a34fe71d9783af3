"""Chunks that are brought to a loudness tell what they told before, once."""

from __future__ import annotations

import numpy as np
import pytest

from cosyvoice_client.chunk import AudioChunk
from cosyvoice_runtime.local.levelled import levelled

RATE = 24_000


def chunk(number: int) -> AudioChunk:
    noise = np.random.default_rng(number).uniform(-0.1, 0.1, RATE // 5).astype(np.float32)
    ends = number % 2 == 1
    told = {"checked": True, "redraws": number, "findings": []} if ends else None
    return AudioChunk(noise, 0.0, "stop" if ends else "", verification=told)


@pytest.mark.parametrize("whole", [True, False])
def test_reasons_and_findings_are_told_once(whole: bool) -> None:
    chunks = [chunk(number) for number in range(6)]
    found = list(levelled(chunks, -20.0, whole=whole))
    assert [each.finish_reason for each in found if each.finish_reason] == ["stop"] * 3
    told = [each.verification["redraws"] for each in found if each.verification is not None]
    assert told == [1, 3, 5]
    assert sum(len(each.samples) for each in found) == sum(len(each.samples) for each in chunks)
