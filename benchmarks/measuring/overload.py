"""Figures of a server with more requests than it can take."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from measuring.figures import CONTINUOUS_S, is_continuous, spread
from measuring.load import Sample

REFUSED = "unavailable"
LONGEST_REFUSAL_MS = 50.0
LEAST_CONTINUOUS = 0.99
MOST_TTFB_RATIO = 2.0

Level = dict[str, Any]


def figures(samples: Sequence[Sample], wall_s: float, users: int | None = None) -> Level:
    """Of one level.

    Args:
        users: of a closed loop.
    """
    admitted = [sample for sample in samples if sample.error is None]
    refused = [sample for sample in samples if sample.error == REFUSED]
    continuous = sum(is_continuous(sample, CONTINUOUS_S) for sample in admitted)
    return {
        "asked": len(samples),
        "admitted": len(admitted),
        "refused": len(refused),
        "failed": len(samples) - len(admitted) - len(refused),
        "errors": dict(Counter(sample.error for sample in samples if sample.error)),
        "ttfb_ms": spread([sample.timeline.ttfb_s or 0.0 for sample in admitted]),
        "refusal_ms": spread([sample.latency_s for sample in refused]),
        "without_hint": sum(sample.retry_after_s is None for sample in refused),
        "continuous_share": round(continuous / len(admitted), 4) if admitted else None,
        "requests_per_s": round(len(admitted) / wall_s, 3),
        "audio_s_per_s": round(sum(sample.timeline.audio_s for sample in admitted) / wall_s, 3),
        "wall_s": round(wall_s, 1),
        **({} if users is None else turns(samples, users)),
    }


def turns(samples: Sequence[Sample], users: int) -> Level:
    """How evenly the users of a closed loop were served, and how long one waited for his turn."""
    of_user = defaultdict[int, list[Sample]](list)
    for sample in sorted(samples, key=lambda sample: sample.started_s):
        of_user[sample.user].append(sample)
    served = [sum(sample.error is None for sample in of_user[user]) for user in range(users)]
    waits_s = [wait_s for user in range(users) for wait_s in _waits_s(of_user[user])]
    return {
        "served_least": min(served),
        "served_most": max(served),
        "never_served": served.count(0),
        "wait_ms": spread(waits_s),
    }


def _waits_s(samples: Sequence[Sample]) -> list[float]:
    """Seconds from asking for the first time to being admitted, of each utterance of one user."""
    waits_s, asked_s = [], None
    for sample in samples:
        asked_s = sample.started_s if asked_s is None else asked_s
        if sample.error is None:
            waits_s.append(sample.started_s - asked_s)
            asked_s = None
    return waits_s


def verdicts(levels: Sequence[Level]) -> list[str]:
    """Promises of a server under load, and whether they held."""
    found = []
    by_factor = {level["factor"]: level for level in levels if "factor" in level}
    if by_factor.get(0.5, {}).get("ttfb_ms") and by_factor.get(2.0, {}).get("ttfb_ms"):
        low, high = (by_factor[factor]["ttfb_ms"]["p95"] for factor in (0.5, 2.0))
        found.append(
            f"{_met(high <= MOST_TTFB_RATIO * low)}: p95 of the first audio at twice the capacity is "
            f"{high / low:.2f} times that at half of it, at most {MOST_TTFB_RATIO:g}"
        )
    slowest = max((level["refusal_ms"]["p95"] for level in levels if level["refusal_ms"]), default=0.0)
    found.append(
        f"{_met(slowest <= LONGEST_REFUSAL_MS)}: a refusal takes {slowest:.0f} ms (p95 of the worst level), "
        f"at most {LONGEST_REFUSAL_MS:g}"
    )
    admitted = sum(level["admitted"] for level in levels)
    continuous = sum((level["continuous_share"] or 0.0) * level["admitted"] for level in levels) / admitted
    found.append(
        f"{_met(continuous >= LEAST_CONTINUOUS)}: {continuous:.1%} of the admitted are continuous, "
        f"at least {LEAST_CONTINUOUS:.0%}"
    )
    starved = sum(level.get("never_served", 0) for level in levels)
    found.append(f"{_met(not starved)}: {starved} users were never served")
    return found


def _met(holds: bool) -> str:
    return "met" if holds else "missed"
