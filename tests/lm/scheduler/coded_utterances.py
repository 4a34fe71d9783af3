"""Utterances whose tokens tell whose they are, for networks of engines that are not the library's own."""

from __future__ import annotations

from cosyvoice_runtime.lm import SamplingOptions

SPAN = 100
"""Utterance ``n`` says the codes ``n * SPAN`` and those after it."""
ENDLESS = 10**6
GREEDY = SamplingOptions("greedy", min_tokens=0, max_tokens=60)


def code(name: int, place: int) -> int:
    return name * SPAN + place


def coded(name: int, length: int) -> list[int]:
    return [code(name, place) for place in range(length)]
