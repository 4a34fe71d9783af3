"""How one utterance's speech tokens are drawn and when it ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from cosyvoice_runtime.errors import InvalidInput

STRATEGIES = ("ras", "nucleus", "greedy")

_RANGES: dict[str, tuple[type, float, float]] = {
    "top_k": (int, 0, math.inf),
    "top_p": (float, 1e-6, 1.0),
    "temperature": (float, 0.01, 100.0),
    "repetition_penalty": (float, 0.01, 100.0),
    "window": (int, 1, 10_000),
    "tau": (float, 0.0, 1.0),
    "seed": (int, 0, 2**63 - 1),
    "min_tokens": (int, 0, math.inf),
    "max_tokens": (int, 1, math.inf),
    "ceiling": (int, 1, math.inf),
    "min_ratio": (float, 0.0, 1000.0),
    "max_ratio": (float, 0.0, 1000.0),
    "runaway_span": (int, 0, math.inf),
    "runaway_period": (int, 1, math.inf),
}


@dataclass(frozen=True)
class SamplingOptions:
    """Sampling and length limits; the defaults are those of CosyVoice2's own inference.

    Attributes:
        strategy: ``ras`` (repetition-aware sampling), ``nucleus`` (top-k, then top-p of what is left) or
            ``greedy``. Temperature and repetition penalty apply to all three, before anything else.
        top_k: candidates at most; 0 is no limit.
        top_p: probability after which no further candidate is taken. RAS measures it over all tokens,
            nucleus over the top-k.
        temperature: divides the logits.
        repetition_penalty: divides positive and multiplies negative logits of tokens already in the
            speech prompt or the output.
        window, tau: RAS draws again, from all tokens but the drawn one, if that occurs at least
            ``window * tau`` times among the last ``window`` output tokens.
        seed: of the utterance's generator; None draws a fresh one.
        min_tokens, max_tokens: speech tokens; None derives them from the number of text tokens.
        ceiling: most tokens that there is room for: the derived limit is lowered to it, a greater max_tokens
            is refused. None is no ceiling.
        min_ratio, max_ratio: speech tokens per text token for the derived limits.
        runaway_span: an output whose last ``runaway_span`` tokens are one short cycle is ended. The
            default of 100 is 4 s at 25 Hz: pauses of 2 s, which are one token repeated, pass. 0 is never.
        runaway_period: longest such cycle.
        upstream_min_length_mask: below the minimum length forbid only the end-of-speech id, as CosyVoice2
            does, not all three stop ids.

    Raises:
        InvalidInput: a value is out of range.
    """

    strategy: str = "ras"
    top_k: int = 25
    top_p: float = 0.8
    temperature: float = 1.0
    repetition_penalty: float = 1.0
    window: int = 10
    tau: float = 0.1
    seed: int | None = None
    min_tokens: int | None = None
    max_tokens: int | None = None
    ceiling: int | None = None
    min_ratio: float = 2.0
    max_ratio: float = 20.0
    runaway_span: int = 100
    runaway_period: int = 8
    upstream_min_length_mask: bool = False

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise InvalidInput("strategy", self.strategy, f"one of {', '.join(STRATEGIES)}")
        for field, (kind, low, high) in _RANGES.items():
            value = getattr(self, field)
            if value is not None and not _within(value, kind, low, high):
                raise InvalidInput(field, value, _describe(kind, low, high))
        if self.max_tokens is not None and (self.min_tokens or 0) > self.max_tokens:
            raise InvalidInput("min_tokens", self.min_tokens, f"at most max_tokens ({self.max_tokens})")
        if self.max_tokens is not None and self.max_tokens > (self.ceiling or math.inf):
            raise InvalidInput("max_tokens", self.max_tokens, f"at most {self.ceiling}")

    @property
    def candidates(self) -> float:
        """Most tokens that a draw chooses from."""
        if self.strategy == "greedy":
            return 1
        return self.top_k or math.inf


def _within(value: Any, kind: type, low: float, high: float) -> bool:
    accepted = (int,) if kind is int else (int, float)
    return isinstance(value, accepted) and not isinstance(value, bool) and low <= value <= high


def _describe(kind: type, low: float, high: float) -> str:
    noun = "an integer" if kind is int else "a number"
    return f"{noun} of at least {low:g}" if high == math.inf else f"{noun} from {low:g} to {high:g}"
