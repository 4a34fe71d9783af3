"""The numbers of one precision compared with those in float32: figures, limits and the table.

The limits are the errors of the demo voice, read with this check, times ten at least, or less 20 dB; the
errors at full size lie within as well (benchmarks/results/README.md, "What half precision changes").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.arrays import Floats

SOURCE = "ten times the errors of the demo voice and of full size in benchmarks/results/README.md"
SILENT = 2.0**-15
"""The sample, of full scale 1, below which a listener hears nothing: one step of 16 bits."""
CLIPPED = 0.98, 0.05
"""The level from which a sample is at its limit, and the share of such samples that distorts speech."""
HEADINGS = "stage", "precision", "found", "limit", ""


class Limit(NamedTuple):
    """The limits of one number format.

    Attributes:
        divergence: of the speech LM's draws, nats a token.
        mel, samples: dB of signal to error.
    """

    divergence: float
    mel: float
    samples: float


LIMITS = {
    "float32": Limit(1e-6, 80.0, 60.0),
    "float16": Limit(1e-3, 45.0, 35.0),
    "bfloat16": Limit(1e-2, 25.0, 15.0),
    "float8": Limit(1e-2, 40.0, 35.0),
    "int8": Limit(1e-2, 25.0, 35.0),
    "int8_rows": Limit(3e-2, 25.0, 35.0),
}
"""The limits by number format."""


class RoundResult(NamedTuple):
    """The results of one precision.

    Attributes:
        tokens: the tokens that it said; a second precision says those of the first.
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
    """The text of a comparison.

    Attributes:
        wrong: why the figure is beyond its limit; empty when it is not.
    """

    found: str
    limit: str = ""
    wrong: str = ""


class Row(NamedTuple):
    """A line of the table.

    Attributes:
        wrong: why it is not as it should be; empty when it is.
    """

    stage: str
    precision: str
    found: str
    limit: str = ""
    wrong: str = ""


def table(rows: Sequence[Row]) -> str:
    """Lines of Markdown, readable as they are."""
    cells = [HEADINGS, *((*row[:4], "WRONG" if row.wrong else "ok") for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(HEADINGS))]
    lines = [cells[0], ["-" * width for width in widths], *cells[1:]]
    return "\n".join(f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines)


def of_logits(spoken: RoundResult, expected: RoundResult | None, format_: str) -> Comparison:
    """Compare the probabilities of the speech LM's next token after the same tokens."""
    if expected is None:
        return Comparison(f"finite, {len(spoken.tokens)} tokens")
    count = min(len(spoken.logits), len(expected.logits))
    found, wanted = spoken.logits[:count], expected.logits[:count]
    apart, most = divergence(found, wanted), LIMITS[format_].divergence
    figure = f"divergence {apart:.1e}, best token the same {same_best(found, wanted):.0%}"
    wrong = "" if apart <= most else f"divergence {apart:.1e} from float32, at most {most:.0e} is usual"
    return Comparison(figure, f"at most {most:.0e}", wrong)


def of_mel(spoken: RoundResult, expected: RoundResult | None, format_: str) -> Comparison:
    """Compare the mel of the same tokens."""
    if expected is None:
        return Comparison(f"finite, {spoken.mel.min():.1f} to {spoken.mel.max():.1f}")
    return _compared(spoken.mel, expected.mel, LIMITS[format_].mel)


def of_samples(spoken: RoundResult, expected: RoundResult | None, format_: str) -> Comparison:
    """Compare the samples of the same mel, after checking that anything can be heard at all."""
    levels, (level, share) = np.abs(spoken.samples), CLIPPED
    clipped = float((levels >= level).mean())
    heard = f"peak {levels.max():.2f}"
    if levels.max() < SILENT:
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


def divergence(found: Floats, expected: Floats) -> float:
    """The Kullback-Leibler divergence between logits ``[T, V]``, in nats a token."""
    expected_log, found_log = _log_softmax(expected), _log_softmax(found)
    return float((np.exp(expected_log) * (expected_log - found_log)).sum(-1).mean())


def same_best(found: Floats, expected: Floats) -> float:
    """The share of logits ``[T, V]`` whose largest is the same."""
    return float((found.argmax(-1) == expected.argmax(-1)).mean())


def decibels(found: Floats, expected: Floats) -> float:
    """The ratio of signal to error; infinite without an error."""
    signal = np.asarray(expected, np.float64)
    error = np.square(found - signal).mean()
    return float(10 * np.log10(np.square(signal).mean() / error)) if error else np.inf


def _log_softmax(logits: Floats) -> Floats:
    shifted = np.asarray(logits, np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
