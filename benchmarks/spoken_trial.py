"""Sentences spoken by teacher and product side by side, and everything that is measured of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cosyvoice_runtime.audio import resample as arrays
from cosyvoice_runtime.audio.audio import Audio
from cosyvoice_runtime.engine.utterance.layout import lm_prompts
from cosyvoice_runtime.lm import SamplingOptions
from cosyvoice_runtime.lm.torch.decoder import generate
from cosyvoice_runtime.local import SpeechRequest, Synthesizer
from cosyvoice_runtime.voice import Voice
from demo_voice.training.data import recording
from demo_voice.training.sizes import CODES, DIGITS
from demo_voice.training.speakers import HELD_OUT, RATE, TRAINING
from measuring import joins
from measuring.heard import Recogniser, distance, words
from measuring.timbre import Timbres

SENTENCE, LIKENESS = "sentence", "likeness"
REFERENCE = "He walked slowly to the old house on the hill."
PROFILES = (
    "The boat sailed across the lake at night.",
    "They sat by the fire and told each other stories.",
    "She opened the window and listened to the rain.",
    "We were approaching our destination.",
    "Chapter one hundred eighty-seven begins on page three.",
    "He drew a circle around the points.",
    "Jump from one thing to another.",
    "The weather in London will be fine on Sunday.",
    "I was recalled to the present by the apparition of a frightening specter.",
    "Turn left after six miles, and then take the second street on the right.",
    "Good printing makes a book more pleasurable to read.",
)
"""With the reference, what the timbre of a speaker is known from; no training has read these sentences."""
SEED = 1
PLACES = ("at_joins", "elsewhere", "there_without_joins")

Row = dict[str, Any]
Task = tuple[str, str, Sequence[str]]
"""Kind, speaker, sentences."""


class Trial:
    """A checkpoint, a recogniser, and the speakers as references."""

    def __init__(self, checkpoint: Path, ode_steps: int) -> None:
        self.synthesizer = Synthesizer.from_checkpoint(checkpoint, ode_steps=ode_steps)
        self.recognise = Recogniser()
        self.speakers = {speaker.name: speaker for speaker in (*TRAINING, *HELD_OUT)}
        self.voices: dict[str, Voice] = {}
        self._timbres: Timbres | None = None

    def rows(self, task: Task) -> list[Row]:
        """A row of figures for each sentence of a task."""
        kind, name, texts = task
        measure = self.sentence if kind == SENTENCE else self.likeness
        return [{"kind": kind, "speaker": name, "text": text, **measure(name, text)} for text in texts]

    def sentence(self, name: str, text: str) -> Row:
        """Words, tokens, joins, end and speed."""
        teacher, _ = recording(self.speakers[name], text)
        began = time.process_time()
        tokens, reason = self.tokens(name, text)
        chunks = self.chunks(name, text, tokens, streaming=True)
        spent = time.process_time() - began
        streamed = torch.cat(chunks)
        offline = torch.cat(self.chunks(name, text, tokens, streaming=False))
        low = resample(streamed, self.synthesizer.sample_rate, RATE)
        heard = {
            "teacher": self.words_in(teacher),
            "streamed": self.words_in(low),
            "offline": self.words_in(resample(offline, self.synthesizer.sample_rate, RATE)),
        }
        wanted = words(text)
        return {
            **{f"{way}_heard": " ".join(found) for way, found in heard.items()},
            **{f"{way}_errors": distance(wanted, found) for way, found in heard.items()},
            "words": len(wanted),
            **self.token_errors(tokens, low),
            **join_figures(streamed, offline, chunks),
            "offline_difference": (streamed - offline).abs().max().item(),
            "duration_ratio": len(low) / len(teacher),
            "finish_reason": reason,
            "end_db": joins.end_level(streamed),
            "seconds": len(low) / RATE,
            "processor_s": spent,
        }

    def words_in(self, samples: Tensor) -> list[str]:
        """Words that the recogniser hears in 16 kHz samples."""
        return words(self.recognise(samples.numpy()))

    def likeness(self, name: str, text: str) -> Row:
        """Who sounds most like the product and like the teacher, by two measures.

        One of the speakers of the training, or of all if this one is not among them.
        """
        known = [speaker.name for speaker in TRAINING]
        if name not in known:
            known = list(self.speakers)
        teacher, _ = recording(self.speakers[name], text)
        tokens, _ = self.tokens(name, text)
        product = torch.cat(self.chunks(name, text, tokens, streaming=True))
        product = resample(product, self.synthesizer.sample_rate, RATE)
        return {
            "encoder": self.nearest(product, known),
            "timbre": self.timbres().nearest(product, known),
            "teacher_encoder": self.nearest(teacher, known),
            "teacher_timbre": self.timbres().nearest(teacher, known),
        }

    def pairs(self, name: str, texts: Sequence[str]) -> list[tuple[Tensor, Tensor]]:
        """16 kHz samples of teacher and product."""
        rate = self.synthesizer.sample_rate
        return [
            (
                recording(self.speakers[name], text)[0],
                resample(torch.cat(self.chunks(name, text, self.tokens(name, text)[0], True)), rate, RATE),
            )
            for text in texts
        ]

    def tokens(self, name: str, text: str) -> tuple[list[int], str]:
        """Tokens of the speech LM, drawn as published, and why they ended."""
        [prompt] = lm_prompts(
            SpeechRequest(text, self.voice(name)), self.synthesizer.front_end, self.synthesizer.tokenizer
        )
        tokens, reason = generate(self.synthesizer.lm, prompt, SamplingOptions(seed=SEED))
        return tokens, reason.value

    def chunks(self, name: str, text: str, tokens: Sequence[int], streaming: bool) -> list[Tensor]:
        """Waveform of the tokens."""
        request = SpeechRequest(text, self.voice(name), seed=SEED, streaming=streaming)
        return [
            torch.from_numpy(chunk.samples) for chunk in self.synthesizer.synthesize_tokens(tokens, request)
        ]

    def token_errors(self, spoken: Sequence[int], samples: Tensor) -> Row:
        """Codes, and ternary digits of codes, that the tokenizer reads otherwise in the product's audio."""
        said = torch.tensor(spoken) % CODES
        read = torch.from_numpy(self.synthesizer.extractors.speech_tokenizer(samples.numpy())).long() % CODES
        count = min(len(said), len(read))
        powers = 3 ** torch.arange(DIGITS)
        digits = [tokens[:count, None] // powers % 3 for tokens in (said, read)]
        return {
            "tokens": len(said),
            "token_errors": distance(said.tolist(), read.tolist()),
            "digits": count * DIGITS,
            "digit_errors": int((digits[0] != digits[1]).sum()),
        }

    def voice(self, name: str) -> Voice:
        """From a recording of a sentence that the training doesn't hold."""
        if name not in self.voices:
            samples, _ = recording(self.speakers[name], REFERENCE)
            self.voices[name] = self.synthesizer.voice(Audio(samples.numpy(), RATE), REFERENCE)
        return self.voices[name]

    def nearest(self, samples: Tensor, names: Sequence[str]) -> str:
        """Which of the speakers has the reference most like the samples, by the speaker encoder."""
        embedding = torch.from_numpy(self.synthesizer.extractors.speaker_encoder(samples.numpy()))
        references = torch.from_numpy(np.stack([self.voice(name).speaker_embedding for name in names]))
        return names[int(torch.cosine_similarity(embedding[None], references).argmax())]

    def timbres(self) -> Timbres:
        """All speakers, trained on or not, by their own recordings."""
        if self._timbres is None:
            self._timbres = Timbres(
                {
                    name: [recording(speaker, text)[0] for text in (REFERENCE, *PROFILES)]
                    for name, speaker in self.speakers.items()
                }
            )
        return self._timbres


def join_figures(streamed: Tensor, offline: Tensor, chunks: Sequence[Tensor]) -> Row:
    """Changes and spikes at the joins, elsewhere, and at the same moments of the audio without joins."""
    ends = list(accumulate(len(chunk) for chunk in chunks if len(chunk)))[:-1]
    figures: Row = {}
    for name, measure in (("changes", joins.changes), ("spikes", joins.spikes)):
        at, elsewhere = joins.at_and_elsewhere(measure(streamed), ends)
        without, _ = joins.at_and_elsewhere(measure(offline), ends)
        values = (at, elsewhere[:: joins.REACH], without)
        figures |= {f"{name}_{place}": found for place, found in zip(PLACES, values, strict=True)}
    return figures


def resample(samples: Tensor, rate: int, new_rate: int) -> Tensor:
    """The same sound at another rate."""
    return torch.from_numpy(arrays.resample(samples.numpy(), rate, new_rate))
