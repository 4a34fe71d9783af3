"""Drawing speech tokens: each sequence of a batch by its own options and its own noise.

Candidates are selected where the logits are: here for logits of the host, by `speech_decoder` for logits of
PyTorch. The draws happen here. So a seed gives the same draws on every device, and the draws of the
reference (`torch.multinomial` on a CPU fills as many values as there are candidates).

B: sequences, V: speech rows of the head, K: candidates.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.errors import InvalidInput

WORD = 0xFFFFFFFF
MANTISSA = (1 << 53) - 1
TOGETHER = 512
"""The fewest values that are drawn at once: some twenty tokens have 25 candidates each, and one call for each
would take longer than its values."""


class ExponentialNoise:
    """Values of ``torch.empty(size).exponential_(generator=torch.Generator().manual_seed(seed))``.

    The generator is the Mersenne Twister MT19937, seeded with the lower 32 bits. Two of its words are one
    value: 53 bits of uniform distribution in double precision, of which the logarithm is rounded to float32.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed & WORD
        self._ahead = np.empty(0, np.float32)

    @cached_property
    def _twister(self) -> np.random.RandomState:
        """The generator, seeded on first use: that takes 0.1 ms, and where a device draws it is never used.

        numpy's legacy class has the seeding of 2002, and numpy has promised to keep its numbers.
        """
        return np.random.RandomState(self._seed)

    def __call__(self, size: int) -> npt.NDArray[np.float32]:
        """The next ``size`` values, float32 [size]."""
        missing = size - len(self._ahead)
        if missing > 0:
            self._ahead = np.concatenate([self._ahead, self._drawn(max(missing, TOGETHER))])
        values, self._ahead = self._ahead[:size], self._ahead[size:]
        return values

    def _drawn(self, size: int) -> npt.NDArray[np.float32]:
        words = self._twister.randint(0, WORD + 1, (size, 2), dtype=np.uint32)
        bits = (words[:, 0].astype(np.uint64) << np.uint64(32)) | words[:, 1]
        uniform = (bits & np.uint64(MANTISSA)) * 2.0**-53
        return (-np.log1p(-uniform)).astype(np.float32)


STRATEGIES = ("ras", "nucleus", "greedy")

REPEATS_TOLERANCE = 1e-6
"""A share of a token that exceeds the error of a float32 threshold."""
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


RUNAWAY_S = 4
"""An output that repeats one short cycle of tokens for so many seconds will not recover."""


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
        runaway_span: an output whose last ``runaway_span`` tokens are one short cycle is ended. None is as
            many as last :data:`RUNAWAY_S`: pauses of half of it, which are one token repeated, pass. 0 is
            never.
        runaway_period: longest such cycle.
        upstream_min_length_mask: below the minimum length forbid only the first stop id, as the published
            code does, not all of them. That is CosyVoice2's end of speech; with CosyVoice3 it is sos, so that
            there is no minimum.

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
    runaway_span: int | None = None
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
    def most_repeats(self) -> int:
        """Least number of times that a drawn token is among the last ``window`` ones when RAS draws again.

        A ``tau`` of 0.1 that came as float32 counts like 0.1 in float64, where ten times it is 1.
        """
        return math.ceil(self.window * self.tau - REPEATS_TOLERANCE)

    @property
    def candidates(self) -> float:
        """Most tokens that a draw chooses from."""
        if self.strategy == "greedy":
            return 1
        return self.top_k or math.inf


def check_room(options: SamplingOptions, room: int) -> None:
    """Raise `InvalidInput` for a wanted length that there is no room for."""
    for field in ("min_tokens", "max_tokens"):
        wanted = getattr(options, field)
        if wanted is not None and wanted > room:
            raise InvalidInput(field, wanted, f"after this prompt there is room for {room}")


def _within(value: Any, kind: type, low: float, high: float) -> bool:
    accepted = (int,) if kind is int else (int, float)
    return isinstance(value, accepted) and not isinstance(value, bool) and low <= value <= high


def _describe(kind: type, low: float, high: float) -> str:
    noun = "an integer" if kind is int else "a number"
    return f"{noun} of at least {low:g}" if high == math.inf else f"{noun} from {low:g} to {high:g}"


FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
Blocked = npt.NDArray[np.bool_]
"""[B, stop ids], true where a stop id must not be drawn."""

NOT_FINITE = -1
"""Drawn for a sequence whose logits are no distribution."""


class Barred(IntEnum):
    """Stop ids that must not be drawn."""

    NONE = 0
    FIRST = 1
    ALL = 2
    ALL_BUT_FILL = 3
    """All stop ids but the fill marker, by which a sequence asks for more text."""


class SamplerState:
    """Options and seed on which one utterance's draws depend.

    Attributes:
        seed: seed of ``noise``; drawn afresh if the options name none.
        noise: exponential noise of the seed.
        history: ids drawn so far, control ids included.
        prompt: speech ids that the repetition penalty counts as well.
    """

    def __init__(self, options: SamplingOptions, prompt: Sequence[int] = ()) -> None:
        self.options = options
        self.seed = secrets.randbits(63) if options.seed is None else options.seed
        self.noise = ExponentialNoise(self.seed)
        self.history: list[int] = []
        self.prompt = tuple(prompt)

    def repeats(self, token: int) -> bool:
        """Whether RAS rejects this draw."""
        options = self.options
        if options.strategy != "ras":
            return False
        return self.history[-options.window :].count(token) >= options.most_repeats


class Choices(NamedTuple):
    """Candidates of draws.

    Attributes:
        scores: [B, V]; their softmax is the probability of each id.
        probs: [B, K], in descending order.
        ids: [B, K] of the candidates.
    """

    scores: FloatArray
    probs: FloatArray
    ids: IntArray


def sample_batch(
    logits: FloatArray, states: Sequence[SamplerState], blocked: Blocked | None = None
) -> list[int]:
    """Draw one token per sequence; its draw does not depend on the others.

    Args:
        logits: [B, V].
        states: one per sequence; the caller appends the token to ``history`` if it counts.

    Returns:
        B ids, `NOT_FINITE` for sequences whose logits hold nan or +inf.
    """
    with np.errstate(invalid="ignore"):  # The probabilities tell of values that are not finite.
        scores = _scores(logits, states)
        if blocked is not None:
            scores[:, -blocked.shape[1] :][blocked] = -np.inf
        return draw(Choices(scores, *top_candidates(scores, depth_of(states, scores.shape[1]))), states)


def depth_of(states: Sequence[SamplerState], rows: int) -> int:
    """Candidates to select: as many as the sequence with the most."""
    return int(min(max(state.options.candidates for state in states), rows))


def top_candidates(scores: FloatArray, depth: int) -> tuple[FloatArray, IntArray]:
    """Probabilities [B, K] in descending order and their ids [B, K]; equal ones by ascending id."""
    probs = softmax(scores)
    size = probs.shape[1]
    # Floats of one sign order like their bits. With the id below them keys are unique, so any selection
    # gives the result of a stable sort, at a fraction of its cost.
    keys = (probs.view(np.int32).astype(np.int64) << 32) | np.arange(size - 1, -1, -1)
    if depth < size:
        keys = np.partition(keys, size - depth, axis=1)[:, size - depth :]
    ids = size - 1 - (np.sort(keys, axis=1)[:, ::-1] & 0xFFFFFFFF)
    return probs[np.arange(len(ids))[:, None], ids], ids


def softmax(scores: FloatArray) -> FloatArray:
    """Softmax of each row."""
    exps = np.exp(scores - scores.max(axis=1, keepdims=True))
    exps /= exps.sum(axis=1, keepdims=True)
    return exps


def nucleus_sizes(probs: FloatArray, states: Sequence[SamplerState]) -> IntArray:
    """Number of candidates [B] to choose from: ``top_k`` at most, and none after ``top_p`` is reached."""
    top_k = np.array([[state.options.candidates] for state in states])
    top_p = np.array([[state.options.top_p] for state in states], dtype=np.float32)
    over_all = np.array([[state.options.strategy == "ras"] for state in states])
    within = np.arange(probs.shape[1]) < top_k
    # Term by term in float32, as the reference does: a sum in another order can round across top_p.
    reached = np.add.accumulate(np.where(within, probs, np.float32(0)), axis=1)
    before = np.zeros_like(reached)
    before[:, 1:] = reached[:, :-1]
    total = np.where(over_all, np.float32(1), reached[:, -1:])
    return np.asarray((within & (before < top_p * total)).sum(axis=1))


def seen_ids(states: Sequence[SamplerState], rows: int) -> npt.NDArray[np.bool_]:
    """[B, rows] ids that each sequence's repetition penalty counts; none where it has no penalty."""
    seen = np.zeros((len(states), rows), dtype=bool)
    for ids, state in zip(seen, states, strict=True):
        if state.options.repetition_penalty != 1:
            ids[[*state.prompt, *state.history]] = True
    return seen


def draw(choices: Choices, states: Sequence[SamplerState]) -> list[int]:
    """One id for each sequence, `NOT_FINITE` where the first probability is nan."""
    scores, probs, ids = choices
    picks = _race(probs, nucleus_sizes(probs, states), states)
    tokens = ids[np.arange(len(ids)), picks]
    _redraw_repeats(tokens, scores, states)
    tokens[np.isnan(probs[:, 0])] = NOT_FINITE
    drawn: list[int] = tokens.tolist()
    return drawn


def _scores(logits: FloatArray, states: Sequence[SamplerState]) -> FloatArray:
    """Log-probabilities [B, V] after temperature, then repetition penalty (the order of TensorRT-LLM)."""
    if any(state.options.temperature != 1 for state in states):
        logits = logits / _column([state.options.temperature for state in states])
    if any(state.options.repetition_penalty != 1 for state in states):
        penalty = _column([state.options.repetition_penalty for state in states])
        penalised = np.where(logits < 0, logits * penalty, logits / penalty)
        logits = np.where(seen_ids(states, logits.shape[1]), penalised, logits)
    scores = logits - logits.max(axis=1, keepdims=True)
    scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return scores


def _column(values: Sequence[float]) -> FloatArray:
    return np.array(values, dtype=np.float32)[:, None]


def _race(probs: FloatArray, sizes: IntArray, states: Sequence[SamplerState]) -> IntArray:
    """Index [B] of one candidate per sequence: the largest ratio of probability to exponential noise.

    This is what `torch.multinomial` does on the CPU, with one fill of as many values as candidates.
    """
    noise = np.ones_like(probs)
    for fill, size, state in zip(noise, sizes.tolist(), states, strict=True):
        if state.options.strategy != "greedy":
            fill[:size] = state.noise(size)
    outside = np.arange(probs.shape[1]) >= sizes[:, None]
    with np.errstate(divide="ignore"):  # Noise may be 0, as in `torch.multinomial`.
        return np.where(outside, np.float32(-1), probs / noise).argmax(axis=1)


def _redraw_repeats(tokens: IntArray, scores: FloatArray, states: Sequence[SamplerState]) -> None:
    """Replace draws that RAS rejects by one from all other tokens, in place."""
    repeating = [index for index, token in enumerate(tokens.tolist()) if states[index].repeats(token)]
    if not repeating:
        return
    others = scores[repeating]
    others[np.arange(len(repeating)), tokens[repeating]] = -np.inf
    noise = np.stack([states[index].noise(others.shape[1]) for index in repeating])
    with np.errstate(divide="ignore"):
        tokens[repeating] = (softmax(others) / noise).argmax(axis=1)
