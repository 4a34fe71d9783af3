"""Sentences in the named voices of a checkpoint, and how many of their words a recogniser gets wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from cosyvoice_runtime.audio.resample import resample
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.single_utterance import generate_all
from cosyvoice_runtime.pipeline import SpeechRequest, Synthesizer
from cosyvoice_runtime.pipeline.networks import NUM_STEPS
from cosyvoice_runtime.pipeline.request import lm_prompts
from cosyvoice_runtime.voice import Voice
from measuring.heard import RATE, Recogniser, distance, words
from measuring.paired import Row, Task


class Reading(NamedTuple):
    """A sentence that a voice is to read.

    Attributes:
        seed: of the speech LM's draws.
        name: of the voice.
        prompt: of text and voice, for the speech LM.
    """

    seed: int
    text: str
    name: str
    voice: Voice
    prompt: Prompt

    def row(self) -> Row:
        """What was to be read, as each measurement's rows begin."""
        return {"text": self.text, "voice": self.name, "words": len(words(self.text))}


class Reader:
    """A checkpoint on one thread, whose voices take turns, and a recogniser.

    Args:
        ode_steps: of its flow.
    """

    def __init__(self, checkpoint: Path, ode_steps: int = NUM_STEPS) -> None:
        torch.set_num_threads(1)
        self.synthesizer = Synthesizer.from_checkpoint(checkpoint, ode_steps=ode_steps)
        self._voices = sorted(self.synthesizer.speakers.items())
        self._recognise = Recogniser()

    def reading(self, task: Task) -> Reading:
        """A task's seed says whose turn it is."""
        seed, text = task
        name, voice = self._voices[seed % len(self._voices)]
        [prompt] = lm_prompts(
            SpeechRequest(text, voice), self.synthesizer.front_end, self.synthesizer.tokenizer
        )
        return Reading(seed, text, name, voice, prompt)

    def tokens(self, reading: Reading) -> list[int]:
        """Speech tokens, of the checkpoint's speech LM as it is."""
        tokens, _ = generate_all(self.synthesizer.lm, reading.prompt, SamplingOptions(seed=reading.seed))
        return tokens

    def spoken(self, tokens: Sequence[int], request: SpeechRequest) -> npt.NDArray[np.float32]:
        """``[n]`` at 16 kHz, of the checkpoint's flow and vocoder as they are."""
        chunks = self.synthesizer.synthesize_tokens(tokens, request)
        samples = np.concatenate([chunk.samples for chunk in chunks])
        return resample(samples, self.synthesizer.sample_rate, RATE)

    def wrong_words(self, reading: Reading, samples: npt.NDArray[np.float32]) -> int:
        """Of the sentence, in ``[n]`` at 16 kHz."""
        return distance(words(reading.text), self._recognise(torch.from_numpy(samples)))
