"""Finds the heads of a speech LM that follow the text, without true times: by what its draws depend on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cosyvoice_runtime.alignment.dependence import EARLY_ROWS, attention, onsets
from cosyvoice_runtime.alignment.path import WORDLESS, TextPath
from cosyvoice_runtime.alignment.words import BEGINS, letters
from cosyvoice_runtime.arrays import Array, Floats
from cosyvoice_runtime.checkpoint.alignment_heads import AlignmentHeads
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.torch.network import SpeechLM

MOST_HEADS = 4
LEAST_WORDS = 3
"""A sentence with fewer words that the draws depend on tells no pace."""
LEAST_GAIN = 0.1
"""A further head is kept if the error shrinks by this share."""
MOST_ERROR_S = 0.2
"""A head whose mean error is larger follows no text: letters alone do better."""
RIDGE = 0.2
"""Holds back a slope that few words tell: their errors' variance, 1.4 rows squared, by that of slopes, 7."""
FAR_ROWS = 12.0
"""Errors count as this at most, so that few misplaced words choose no head."""


class Sentence(NamedTuple):
    """A sentence that the speech LM has spoken.

    Attributes:
        prompt: with its text.
        pieces: texts of the text tokens.
        tokens: speech tokens.
    """

    prompt: Prompt
    pieces: Sequence[str]
    tokens: Sequence[int]


@dataclass(frozen=True)
class Calibration:
    """
    Attributes:
        heads: what was found.
        words: how many beginnings were compared.
        median_s, p95_s: errors of these beginnings against those that the draws depend on.
    """

    heads: AlignmentHeads
    words: int
    median_s: float
    p95_s: float


class _Spoken(NamedTuple):
    """Letters of each text token, attention ``[heads, T, N]``, and first rows by text token."""

    lengths: list[float]
    shares: Floats
    onsets: dict[int, int]


def calibrate(lm: SpeechLM, utterances: Sequence[Sentence], llm_sha256: str, seed: int = 0) -> Calibration:
    """Choose the heads whose path through the text agrees best with what the draws depend on.

    Raises:
        CheckpointError: none follows the text.
    """
    config = lm.config
    every = [(layer, head) for layer in range(config.num_layers) for head in range(config.num_heads)]
    spoken = list(_spoken(lm, utterances, every, np.random.default_rng(seed)))
    pace = _rows_per_letter(spoken)
    alone = [_mean_error(_errors(spoken, [number], pace)) for number in range(len(every))]
    best_first = np.argsort(alone, kind="stable").tolist()
    chosen, error = best_first[:1], alone[best_first[0]]
    for number in best_first[1:MOST_HEADS]:
        further = _mean_error(_errors(spoken, [*chosen, number], pace))
        if further < (1 - LEAST_GAIN) * error:
            chosen, error = [*chosen, number], further
    if error / config.token_rate > MOST_ERROR_S:
        raise CheckpointError(
            f"no head of the speech LM follows the text: the best one, {every[chosen[0]]}, is "
            f"{error / config.token_rate:.2f} s off on average; at most {MOST_ERROR_S} s is of use"
        )
    late = [_errors([each], chosen, pace) for each in spoken]
    slower = np.array([_rows_per_letter([each]) - pace for each in spoken])
    lead, per_pace = _line(slower, -np.array([_centre(each) for each in late]), [len(each) for each in late])
    off = abs(np.concatenate([each + lead + per_pace * x for each, x in zip(late, slower, strict=True)]))
    heads = AlignmentHeads(
        tuple(every[number] for number in chosen),
        round(lead + EARLY_ROWS, 3),
        round(per_pace, 3),
        round(pace, 3),
        llm_sha256,
    )
    off_s = off / config.token_rate
    return Calibration(heads, len(off), float(np.median(off_s)), float(np.percentile(off_s, 95)))


def _line(x: Array, y: Array, weights: Sequence[int]) -> tuple[float, float]:
    """Height at 0 and slope of the line through points; few or close ones leave it flat."""
    weight = np.asarray(weights, dtype=np.float64)
    middle, height = np.average(x, weights=weight), np.average(y, weights=weight)
    slope = (weight * (x - middle) * (y - height)).sum() / ((weight * (x - middle) ** 2).sum() + RIDGE)
    return float(height - slope * middle), float(slope)


def _spoken(
    lm: SpeechLM,
    utterances: Sequence[Sentence],
    heads: Sequence[tuple[int, int]],
    chance: np.random.Generator,
) -> Iterator[_Spoken]:
    for utterance in utterances:
        begins = [number for number, piece in enumerate(utterance.pieces) if number and BEGINS.match(piece)]
        if not begins:
            continue
        others = [id_ for each in utterances if each is not utterance for id_ in each.prompt.text]
        drawn, shares = attention(lm, utterance.prompt, utterance.tokens, heads)
        rows = onsets(lm, utterance.prompt, utterance.tokens, drawn, begins, others, chance)
        found = {begin: row for begin, row in zip(begins, rows, strict=True) if row is not None}
        if len(found) < LEAST_WORDS:
            continue
        yield _Spoken([letters(piece) for piece in utterance.pieces], shares.cpu().numpy(), found)


def _rows_per_letter(spoken: Sequence[_Spoken]) -> float:
    """How much longer than one row a text token lasts for each letter, from the first word to the last."""
    rows = tokens = said = 0.0
    for each in spoken:
        begins = sorted(each.onsets)
        if begins:
            lengths = each.lengths[begins[0] : begins[-1]]
            rows += each.onsets[begins[-1]] - each.onsets[begins[0]]
            tokens += sum(length != WORDLESS for length in lengths)
            said += sum(lengths)
    if rows <= tokens or not said:
        raise CheckpointError("the speech LM speaks no words: its draws depend on none of the text")
    return (rows - tokens) / said


def _errors(spoken: Sequence[_Spoken], heads: Sequence[int], pace: float) -> Array:
    """Rows by which each word's beginning on the heads' path lies behind the row that it changes."""
    errors: list[float] = []
    for each in spoken:
        path = TextPath(each.lengths, pace)
        path.push(each.shares[list(heads)].mean(0))
        starts = path.finish()
        errors += [starts[token] - row for token, row in each.onsets.items()]
    return np.array(errors, dtype=np.float64)


def _centre(errors: Array) -> float:
    """Mean of the errors, which is not that of whole rows."""
    middle = float(np.median(errors))
    return middle + float(np.clip(errors - middle, -FAR_ROWS, FAR_ROWS).mean())


def _mean_error(errors: Array) -> float:
    return float(np.minimum(abs(errors - _centre(errors)), FAR_ROWS).mean())
