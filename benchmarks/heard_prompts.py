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
import torch

from cosyvoice_runtime.audio.resample import resample
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.lm.single_utterance import generate_all
from cosyvoice_runtime.pipeline import SpeechRequest, Synthesizer
from cosyvoice_runtime.pipeline.flow_prompt import cut_prompt
from cosyvoice_runtime.pipeline.request import lm_prompts
from cosyvoice_runtime.voice.speaker_encoder import SpeakerEncoder
from measuring.heard import RATE, Recogniser, distance, words
from measuring.paired import Row, Task, compared, measured, parser, tasks, tell

WHOLE, CUT = "whole", "cut"


class Listener:
    """A checkpoint, a recogniser and a speaker encoder."""

    def __init__(self, checkpoint: Path, first_hop: int) -> None:
        torch.set_num_threads(1)
        self._synthesizer = Synthesizer.from_checkpoint(checkpoint)
        self._recognise = Recogniser()
        self._encode = SpeakerEncoder(Layout(checkpoint).speaker_encoder)
        self._voices = sorted(self._synthesizer.speakers.items())
        self._first_hop = first_hop

    def row(self, task: Task) -> Row:
        """Wrong words of each way, how many there are, and how alike the voices are."""
        seed, text = task
        name, voice = self._voices[seed % len(self._voices)]
        [prompt] = lm_prompts(
            SpeechRequest(text, voice), self._synthesizer.front_end, self._synthesizer.tokenizer
        )
        tokens, _ = generate_all(self._synthesizer.lm, prompt, SamplingOptions(seed=seed))
        cut = cut_prompt(voice, self._synthesizer.hop.block_tokens, self._first_hop)
        heard = {
            key: self._spoken(tokens, SpeechRequest(text, each, seed=seed))
            for key, each in ((WHOLE, voice), (CUT, cut))
        }
        return {
            "text": text,
            "voice": name,
            "words": len(words(text)),
            "prompt_tokens": {WHOLE: len(voice.speech_tokens), CUT: len(cut.speech_tokens)},
            "errors": {
                key: distance(words(text), self._recognise(torch.from_numpy(samples)))
                for key, samples in heard.items()
            },
            "likeness": {
                key: cosine(self._encode(samples), voice.speaker_embedding) for key, samples in heard.items()
            },
        }

    def _spoken(self, tokens: Sequence[int], request: SpeechRequest) -> npt.NDArray[np.float32]:
        """[n] at 16 kHz."""
        chunks = self._synthesizer.synthesize_tokens(tokens, request)
        samples = np.concatenate([chunk.samples for chunk in chunks])
        return resample(samples, self._synthesizer.sample_rate, RATE)


def cosine(first: npt.NDArray[np.float32], second: npt.NDArray[np.float32]) -> float:
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


_listener: Listener | None = None


def begin(checkpoint: Path, first_hop: int) -> None:
    global _listener
    _listener = Listener(checkpoint, first_hop)


def listen(task: Task) -> Row:
    assert _listener is not None
    return _listener.row(task)


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
    begun = options.checkpoint, options.first_hop
    for rows in measured(begin, begun, listen, todo, options.processes):
        tell(summary(rows), rows, options.json)


if __name__ == "__main__":
    main()
