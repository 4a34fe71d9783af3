"""Figures of a run from its samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from measuring.load import Sample

PERCENTILES = (50, 90, 95, 99)
CONTINUOUS_S = 0.1
"""A silence up to this long does not count against an utterance."""

Figures = dict[str, Any]


def spread(values_s: Sequence[float]) -> Figures | None:
    """Mean, percentiles (interpolated) and maximum in milliseconds; None without values."""
    if not values_s:
        return None
    values = 1000 * np.asarray(values_s)
    percentiles = {f"p{p}": round(float(np.percentile(values, p)), 3) for p in PERCENTILES}
    return {"mean": round(float(values.mean()), 3), **percentiles, "max": round(float(values.max()), 3)}


def summarise(samples: Sequence[Sample], wall_s: float) -> Figures:
    """Figures of all requests of a run that took ``wall_s`` seconds.

    Latencies are those of requests that were answered in full. A request that failed counts as not
    continuous. ``rtf`` is wall time per second of audio, as CosyVoice's own client reports it.
    """
    spoken = [sample for sample in samples if sample.error is None]
    audio_s = sum(sample.timeline.audio_s for sample in spoken)
    silences_s = [silence for sample in spoken for silence in sample.timeline.underruns_s]
    return {
        "requests": len(samples),
        "errors": dict(Counter(sample.error for sample in samples if sample.error)),
        "finish_reasons": dict(Counter(reason for sample in spoken for reason in sample.finish_reasons)),
        "wall_s": round(wall_s, 3),
        "audio_s": round(audio_s, 3),
        "rtf": round(wall_s / audio_s, 5) if audio_s else None,
        "audio_s_per_s": round(audio_s / wall_s, 3) if wall_s else None,
        "requests_per_s": round(len(spoken) / wall_s, 3) if wall_s else None,
        "ttfb_ms": spread([_ttfb(sample) for sample in spoken]),
        "gap_ms": spread([gap for sample in spoken for gap in sample.timeline.gaps_s]),
        "latency_ms": spread([sample.latency_s for sample in spoken]),
        "rtf_per_request": _rtf_per_request(spoken),
        "underruns": len(silences_s),
        "underrun_s": round(sum(silences_s), 3),
        "cushion_ms": spread([sample.timeline.cushion_s for sample in spoken]),
        "continuous_share": _share(samples, CONTINUOUS_S),
        "gapless_share": _share(samples, 0.0),
    }


def is_continuous(sample: Sample, longest_s: float) -> bool:
    """Whether a listener heard all of it without a silence longer than that."""
    return sample.error is None and max(sample.timeline.underruns_s, default=0.0) <= longest_s


def _share(samples: Sequence[Sample], longest_s: float) -> float | None:
    if not samples:
        return None
    return round(sum(is_continuous(sample, longest_s) for sample in samples) / len(samples), 5)


def _ttfb(sample: Sample) -> float:
    assert sample.timeline.ttfb_s is not None, "a sample without error has audio"
    return sample.timeline.ttfb_s


def _rtf_per_request(spoken: Sequence[Sample]) -> Figures | None:
    ratios = [sample.latency_s / sample.timeline.audio_s for sample in spoken]
    if not ratios:
        return None
    return {f"p{p}": round(float(np.percentile(ratios, p)), 5) for p in PERCENTILES}
