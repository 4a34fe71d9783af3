"""The way of a chunk is divided without a gap."""

from __future__ import annotations

import pytest

chain_overhead = pytest.importorskip(
    "chain_overhead", reason="needs the environment of scripts/environment.py"
)

LM = [{"utterance": "a", "received": 1.5, "sent": [2.0, 3.0, 4.0]}]
WAVE = [
    {"utterance": "a", "number": 7, "position": 0, "tokens": 28, "start": 3.3, "end": 3.4},
    {"utterance": "a", "number": 7, "position": 28, "tokens": 25, "start": 4.3, "end": 4.4},
    {"utterance": "a", "number": 7, "position": 53, "tokens": 22, "start": 5.0, "end": 5.1},
]
CALLS = [
    {"utterance": "a", "position": 0, "start": 3.2, "end": 3.6},
    {"utterance": "a", "position": 28, "start": 4.1, "end": 4.5},
    {"utterance": "a", "position": 53, "start": 4.9, "end": 5.2},
]


def test_parts_of_a_chunk_add_up_to_the_whole() -> None:
    parts = chain_overhead.split({7: (1.0, [3.7, 4.9, 6.0])}, LM, WAVE, CALLS)
    whole = parts.pop("chunk")
    assert parts.pop("request to LM") == [0.5]
    assert whole == pytest.approx([0.7, 0.9])
    assert [sum(values) for values in zip(*parts.values(), strict=True)] == pytest.approx(whole)


def test_a_chunk_counts_from_the_tokens_that_complete_it() -> None:
    parts = chain_overhead.split({7: (1.0, [3.7, 4.9, 6.0])}, LM, WAVE, CALLS)
    assert parts["tokens to call"] == pytest.approx([3.2 - 3.0, 4.1 - 4.0])
