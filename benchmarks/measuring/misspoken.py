"""Speech that does not say its text once, made on purpose, and the rows of attention that it comes with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.alignment.dependence import attention
from cosyvoice_runtime.alignment.jumping_path import JumpingPath
from cosyvoice_runtime.alignment.words import BEGINS
from cosyvoice_runtime.engine.utterance.layout import LaidSegment, laid_out
from cosyvoice_runtime.lm import Generation, SamplingOptions
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
from cosyvoice_runtime.local import SpeechRequest, Synthesizer

Rows = npt.NDArray[np.float32]
SLOTS, POSITIONS = 24, 768
FOREIGN = 5
"""Words of another sentence that babble is made of."""
CYCLE, CYCLES = 9, 5
"""Tokens of the last pause, which the demo voice counts modulo nine, and how often a silence has them."""
NOISE = 30
LEAST = 1e-6
"""Attention that is shown for a word that speech does not look at."""


class Speech(NamedTuple):
    """Speech of a segment, and what it looked at in the segment's text.

    Attributes:
        kind: ``right``, or how it is wrong.
        made: ``drawn`` by the speech LM from other words, or ``forced`` upon it while it has the right ones.
        text, spans: of the segment, and of its text tokens.
        rows: float32 ``[speech tokens, text tokens]``.
        first, end: rows between which it is wrong; end and first are the same where something is missing.
    """

    kind: str
    made: str
    text: str
    spans: list[tuple[int, int]]
    rows: Rows
    first: int = 0
    end: int = 0


class Wrong(NamedTuple):
    """Words in the order in which they are said: by their numbers, or below 0 for foreign ones.

    Attributes:
        first, end: places in the order between which it is wrong.
    """

    kind: str
    order: list[int]
    first: int
    end: int


def wrongs(words: int, chance: Random) -> Iterator[Wrong]:
    """Every kind of error, each at a place of its own; `words` at least 5."""
    every = list(range(words))
    for count in (1, 2, 3):
        at = chance.randrange(1, words - count)
        yield Wrong(f"skips {count}", every[:at] + every[at + count :], at, at)
    for count in (1, 2, 3):
        at = chance.randrange(0, words - count)
        end = at + count
        yield Wrong(f"repeats {count}", every[:end] + every[at:], end, end + count)
    at = chance.randrange(0, words - 2)
    yield Wrong("loops", every[: at + 2] + every[at : at + 2] * 4, at + 2, at + 10)
    at = chance.randrange(1, words - 1)
    yield Wrong("stops early", every[:at], at, at)
    yield Wrong("stops before the last word", every[:-1], words - 1, words - 1)
    at, foreign = chance.randrange(1, words), [-1 - number for number in range(FOREIGN)]
    yield Wrong("babbles", every[:at] + foreign + every[at:], at, at + FOREIGN)
    yield Wrong("babbles on", every + foreign, words, words + FOREIGN)


class Speaker:
    """Speaks sentences in a checkpoint's voices, right and wrong; only the speech LM runs."""

    def __init__(self, synthesizer: Synthesizer) -> None:
        self._lm, self._synthesizer = synthesizer.lm, synthesizer
        assert synthesizer.heads is not None, "the checkpoint has no alignment heads"
        self._heads = synthesizer.heads

    def laid(self, text: str, voice: str) -> LaidSegment:
        """The only segment of a text."""
        request = SpeechRequest(text, self._synthesizer.speakers[voice])
        parts = self._synthesizer.front_end, self._synthesizer.tokenizer
        [segment] = laid_out(request, *parts, lambda voice: voice).segments()
        return segment

    def tokens(self, prompts: Sequence[Prompt], seeds: Sequence[int]) -> list[list[int]]:
        """Speech tokens of many utterances, as many at a time as the batch holds."""
        batch = BatchDecoder(self._lm, SLOTS, POSITIONS)
        left = list(enumerate(zip(prompts, seeds, strict=True)))[::-1]
        running: dict[int, Generation] = {}
        found: list[list[int]] = [[] for _ in prompts]
        while left or running:
            while left and batch.free_slots:
                number, (prompt, seed) = left.pop()
                running[number] = batch.add(prompt, SamplingOptions(seed=seed))
            batch.step()
            for number, generation in list(running.items()):
                if generation.finish_reason is not None:
                    found[number] = generation.tokens
                    del running[number]
        return found

    def speech(
        self, laid: LaidSegment, tokens: Sequence[int], kind: str = "right", first: int = 0, end: int = 0
    ) -> Speech:
        """Tell what tokens look at if the speech LM has this segment's text."""
        assert laid.prompt is not None
        shares = attention(self._lm, laid.prompt, tokens, self._heads.heads)[1].mean(0)
        made = "drawn" if kind == "right" else "forced"
        return Speech(kind, made, laid.text, self._spans(laid), shares.cpu().numpy(), first, end)

    def forced(
        self, laid: LaidSegment, right: Sequence[int], foreign: Sequence[int], chance: Random
    ) -> Iterator[Speech]:
        """Errors that are made of the tokens of right speech, and of other tokens."""
        starts = self._starts(self.speech(laid, right))
        pieces = [list(right[start:end]) for start, end in pairwise(starts)]
        share = max(1, len(foreign) // FOREIGN)
        others = [list(foreign[share * number : share * (number + 1)]) for number in range(FOREIGN)]
        for wrong in wrongs(len(pieces), chance):
            parts = [pieces[place] if place >= 0 else others[-1 - place] for place in wrong.order]
            ends = np.cumsum([0, *map(len, parts)])
            tokens = [token for part in parts for token in part]
            yield self.speech(laid, tokens, wrong.kind, int(ends[wrong.first]), int(ends[wrong.end]))
        size = self._lm.config.speech_tokens
        for kind, more in (
            ("is silent", list(right[-CYCLE:]) * CYCLES),
            ("makes noise", [chance.randrange(size) for _ in range(NOISE)]),
        ):
            at = starts[chance.randrange(1, len(pieces))]
            yield self.speech(laid, [*right[:at], *more, *right[at:]], kind, at, at + len(more))

    def drawn(
        self, laid: LaidSegment, said: LaidSegment, wrong: Wrong, tokens: Sequence[int]
    ) -> Speech | None:
        """Speech of other words as if its looks at them were looks at this segment's, and none elsewhere.

        Returns:
            None where the text front end has changed the number of words.
        """
        speech = self.speech(said, tokens)
        ours, theirs = _words(laid.text, self._spans(laid)), _words(said.text, speech.spans)
        if len(theirs) != len(wrong.order):
            return None
        rows = np.full((len(tokens), len(self._spans(laid))), LEAST, np.float32)
        for word, place in zip(theirs, wrong.order, strict=True):
            for number, token in enumerate(word):
                if place >= 0:
                    rows[:, ours[place][number * len(ours[place]) // len(word)]] += speech.rows[:, token]
        starts = self._starts(speech)
        rows /= rows.sum(1, keepdims=True)
        places = starts[wrong.first], starts[wrong.end]
        return Speech(wrong.kind, "drawn", laid.text, self._spans(laid), rows, *places)

    def _spans(self, laid: LaidSegment) -> list[tuple[int, int]]:
        return list(self._synthesizer.tokenizer.spans(laid.text))

    def _starts(self, speech: Speech) -> list[int]:
        """First speech token of each word, and the end."""
        path = JumpingPath(len(speech.spans))
        for row in speech.rows:
            path.push(row)
        places, lead = path.places(), round(self._heads.lead_rows)
        firsts = [np.flatnonzero(places >= word[0])[:1] for word in _words(speech.text, speech.spans)[1:]]
        length = len(places)
        return [0, *(min(int(row[0]) + lead, length) if len(row) else length for row in firsts), length]


def _words(text: str, spans: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Text tokens of each word."""
    words: list[list[int]] = []
    for number, (start, _) in enumerate(spans):
        if not words or BEGINS.match(text[start:]):
            words.append([])
        words[-1].append(number)
    return words


def write(path: Path, speeches: Sequence[Speech]) -> None:
    """Keep them in a file, rows as float16."""
    facts = json.dumps([(*each[:4], *each[5:]) for each in speeches])
    rows = {f"rows {number}": each.rows.astype(np.float16) for number, each in enumerate(speeches)}
    np.savez_compressed(path, facts=np.array(facts), **rows)


def read(path: Path) -> list[Speech]:
    """Read what :func:`write` has kept."""
    with np.load(path) as kept:
        return [
            Speech(kind, made, text, spans, kept[f"rows {number}"].astype(np.float32), first, end)
            for number, (kind, made, text, spans, first, end) in enumerate(json.loads(str(kept["facts"])))
        ]
