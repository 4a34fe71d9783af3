"""Results of one precision beside those of float32, with how far they may be apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.check.figures import decibels, divergence, same_best
from cosyvoice_runtime.check.limits import CLIPPED, LIMITS, SILENT


class RoundResult(NamedTuple):
    """Results of one precision.

    Attributes:
        tokens: that it said; of a second precision, those of the first.
        logits: ``[T, V]``.
        mel: ``[bins, T]`` of the tokens.
        samples: ``[n]`` of its own mel.
        of_first: samples of the first precision's mel.
    """

    tokens: Sequence[int]
    logits: Floats
    mel: Floats
    samples: Floats
    of_first: Floats


class Comparison(NamedTuple):
    """For reading.

    Attributes:
        wrong: why the figure is beyond its limit; empty when it is not.
    """

    found: str
    limit: str = ""
    wrong: str = ""


def of_logits(spoken: RoundResult, expected: RoundResult | None, format_: str) -> Comparison:
    """Of what the speech LM would draw after the same tokens."""
    if expected is None:
        return Comparison(f"finite, {len(spoken.tokens)} tokens")
    count = min(len(spoken.logits), len(expected.logits))
    found, wanted = spoken.logits[:count], expected.logits[:count]
    apart, most = divergence(found, wanted), LIMITS[format_].divergence
    figure = f"divergence {apart:.1e}, best token the same {same_best(found, wanted):.0%}"
    wrong = "" if apart <= most else f"divergence {apart:.1e} from float32, at most {most:.0e} is usual"
    return Comparison(figure, f"at most {most:.0e}", wrong)


def of_mel(spoken: RoundResult, expected: RoundResult | None, format_: str) -> Comparison:
    """Finding about the mel of the same tokens."""
    if expected is None:
        return Comparison(f"finite, {spoken.mel.min():.1f} to {spoken.mel.max():.1f}")
    return _compared(spoken.mel, expected.mel, LIMITS[format_].mel)


def of_samples(spoken: RoundResult, expected: RoundResult | None, format_: str) -> Comparison:
    """Finding about the samples of the same mel, and of whether anything can be heard at all."""
    peak = float(np.abs(spoken.samples).max())
    level, share = CLIPPED
    clipped = float((np.abs(spoken.samples) >= level).mean())
    heard = f"peak {peak:.2f}"
    if peak < SILENT:
        return Comparison(heard, wrong="the samples are silent")
    if clipped > share:
        return Comparison(heard, wrong=f"{clipped:.0%} of the samples are clipped")
    if expected is None:
        return Comparison(f"finite, {heard}")
    found, limit, wrong = _compared(spoken.of_first, expected.samples, LIMITS[format_].samples)
    return Comparison(f"{found}, {heard}", limit, wrong)


def _compared(found: Floats, expected: Floats, least: float) -> Comparison:
    ratio = decibels(found, expected)
    wrong = "" if ratio >= least else f"{ratio:.0f} dB above its error from float32, {least:.0f} is usual"
    return Comparison(f"signal to error {ratio:.0f} dB", f"{least:.0f} dB", wrong)
