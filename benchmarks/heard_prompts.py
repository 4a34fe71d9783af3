#!/usr/bin/env python3
"""What a recogniser hears of speech whose prompt is cut for an early first chunk, beside a whole prompt.

    pip install pocketsphinx
    python benchmarks/heard_prompts.py --sentences 200
    python benchmarks/heard_prompts.py --first-hop 12 --sentences 289 --processes 16 --json heard.json

The speech LM gets the whole prompt both times, so the speech tokens are the same; the flow gets the prompt
whole or less up to a second of its start (``cosyvoice2.cut_prompts``). Held-out sentences of the demo voice
are spoken by its named voices, whose prompts of two to three seconds are shorter than most. Beside the words,
how alike the voice is to the prompt's: the cosine of their speaker embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import numpy.typing as npt

from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.pipeline import SpeechRequest
from cosyvoice_runtime.pipeline.flow_prompt import cut_prompt
from cosyvoice_runtime.voice.speaker_encoder import SpeakerEncoder
from measuring.paired import Row, Task, compared, measured, parser, tasks, tell
from measuring.reader import Reader

WHOLE, CUT = "whole", "cut"


class PromptListener:
    """A checkpoint and its speaker encoder."""

    def __init__(self, checkpoint: Path, first_hop: int) -> None:
        self._reader = Reader(checkpoint)
        self._encode = SpeakerEncoder(Layout(checkpoint).speaker_encoder)
        self._first_hop = first_hop

    def row(self, task: Task) -> Row:
        """Wrong words of each way, how many there are, and how alike the voices are."""
        reading = self._reader.reading(task)
        tokens, voice = self._reader.tokens(reading), reading.voice
        cut = cut_prompt(voice, self._reader.synthesizer.hop.block_tokens, self._first_hop)
        heard = {
            key: self._reader.spoken(tokens, SpeechRequest(reading.text, each, seed=reading.seed))
            for key, each in ((WHOLE, voice), (CUT, cut))
        }
        return {
            **reading.row(),
            "prompt_tokens": {WHOLE: len(voice.speech_tokens), CUT: len(cut.speech_tokens)},
            "errors": {key: self._reader.wrong_words(reading, samples) for key, samples in heard.items()},
            "likeness": {
                key: cosine(self._encode(samples), voice.speaker_embedding) for key, samples in heard.items()
            },
        }


def cosine(first: npt.NDArray[np.float32], second: npt.NDArray[np.float32]) -> float:
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


def summary(rows: Sequence[Row]) -> Row:
    """Word error rates and likeness, the differences and their standard errors."""
    alike = {key: mean(row["likeness"][key] for row in rows) for key in (WHOLE, CUT)}
    lost = [row["likeness"][CUT] - row["likeness"][WHOLE] for row in rows]
    return {
        **compared(rows, WHOLE, CUT),
        "likeness": alike,
        "likeness_difference": mean(lost),
        "likeness_standard_error": stdev(lost) / len(lost) ** 0.5,
    }


def main() -> None:
    asked = parser(__doc__ or "")
    asked.add_argument("--first-hop", type=int, default=12, help="new tokens of the first chunk")
    options = asked.parse_args()
    todo = tasks(options.script, options.sentences, range(options.seeds))
    made_of = options.checkpoint, options.first_hop
    for rows in measured(PromptListener, made_of, todo, options.processes):
        tell(summary(rows), rows, options.json)


if __name__ == "__main__":
    main()
