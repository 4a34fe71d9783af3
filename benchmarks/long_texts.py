#!/usr/bin/env python3
"""Measure what a long text costs: the time until its first segments are laid out, and the memory it takes.

    python benchmarks/long_texts.py

Texts are sentences of an invented book in paragraphs of eight, and once more in one paragraph, in the default
voice of a checkpoint. The time is the processor's from the request to the first segments, as a driver gets
them: the least of some, because other processes' work makes it longer, each read anew.

The memory is that of this process, in which stand-ins of the networks speak 7.5 tokens for each of the text
and keep nothing: with the driver alone, and with what a front adds that could go on with another server. It
is read in a second answer, so that all is loaded.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path

import numpy as np

from cosyvoice_client import AudioChunk
from cosyvoice_front.rate import at_front_rate
from cosyvoice_front.resume import unbroken
from cosyvoice_runtime.arrays import Floats
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.checkpoint.tensors import load_speakers
from cosyvoice_runtime.engine.utterance.feed import SegmentFeed
from cosyvoice_runtime.engine.utterance.hop import HopPolicy
from cosyvoice_runtime.engine.utterance.layout import SegmentLayout
from cosyvoice_runtime.engine.utterance.request import SpeechRequest, Utterance
from cosyvoice_runtime.engine.utterance.utterance import Playback, TokenGroup, WaveSettings, speak
from cosyvoice_runtime.lm.generation import FinishReason
from cosyvoice_runtime.lm.prompt import Prompt
from cosyvoice_runtime.lm.sampling import SamplingOptions
from cosyvoice_runtime.lm.text_segment import SegmentQueue, TextPieces
from cosyvoice_runtime.settings import CosyVoice2Settings
from cosyvoice_runtime.text import TextFrontEnd, read_tokenizer
from cosyvoice_runtime.voice.speakers import import_speakers
from measuring.machine import provenance
from measuring.report import table

SENTENCES = (
    "The rain had stopped by the time they came to the old house at the end of the lane. ",
    '"Who is there?" she asked, and nobody answered. ',
    "In 1987 it cost $45.50, which was 3 times as much as before. ",
    "He walked on; the road was long, and the night was cold and full of stars that nobody counted. ",
)
PARAGRAPH = 8
LENGTHS = (100, 10_000, 100_000)
MINUTES = (1, 10, 30, 60)
TOKENS_OF_TEXT = 7.5
SAMPLES_OF_TOKEN, RATE = 960, 24_000
TIMES = 9


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkpoint", type=Path, default=Path("demo_voice"))
    book = Book(parser.parse_args().checkpoint)
    first = [
        [f"{length:,}", *(f"{1000 * book.first_s(text(length, part)):.0f}" for part in (PARAGRAPH, None))]
        for length in LENGTHS
    ]
    print(table(["characters", "paragraphs: ms", "one paragraph: ms"], first))
    long = text(LENGTHS[-1])
    memory = []
    for name, hear in (("driver", book.spoken), ("driver and front", book.heard)):
        asyncio.run(mebibytes(hear(text(LENGTHS[0]))))
        memory.append([name, *(f"{size:.1f}" for size in asyncio.run(mebibytes(hear(long))))])
    print(table(["MiB after minutes of speech", *map(str, MINUTES), "end"], memory))
    machine = provenance()["machine"]
    print(f"\n{machine['cpu']}, {machine['cores']} cores")


def text(characters: int, paragraph: int | None = PARAGRAPH) -> str:
    """An invented text of paragraphs with so many sentences; None for one paragraph."""
    draw, made, count = random.Random(1), "", 0
    while len(made) < characters:
        count += 1
        ends = paragraph is not None and count % paragraph == 0
        sentence = draw.choice(SENTENCES)
        made += sentence.rstrip() + "\n\n" if ends else sentence
    return made[:characters]


class Book:
    """Reads texts in a checkpoint's default voice."""

    def __init__(self, checkpoint: Path) -> None:
        layout = Layout(checkpoint)
        self._tokenizer = read_tokenizer(layout)
        self._hop = HopPolicy.of(load_config(checkpoint).flow, CosyVoice2Settings())
        speakers = import_speakers(
            load_speakers(layout),
            self._tokenizer.decode,
            "checkpoint",
            layout.family.prompt_frames_per_token,
        )
        self._voice = next(iter(speakers.values()))

    def first_s(self, text: str) -> float:
        """Seconds of the processor until the first segments of a text are laid out."""
        return min(self._first_s(text) for _ in range(TIMES))

    def _first_s(self, text: str) -> float:
        start = time.process_time()
        self._feed(text)
        return time.process_time() - start

    def _feed(self, text: str) -> tuple[SegmentFeed, Utterance]:
        request = SpeechRequest(text, self._voice, seed=1)
        front_end = TextFrontEnd(self._tokenizer, cached_texts=0)
        layout = SegmentLayout(request, front_end, self._tokenizer, self._hop.flow_voice)
        return SegmentFeed(layout.segments(), len(text)), Utterance.of(request, layout.sound)

    async def spoken(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        """The chunks of a text as a server sends them."""
        feed, utterance = self._feed(text)
        queue, heard = SegmentQueue(), Playback(now=lambda: 0.0)
        feed.begin(queue)
        driven = speak(utterance, queue, StandIns(), self._hop, RATE, lambda: heard.cushion_s)
        async with aclosing(feed.chunks(driven)) as chunks:
            async for chunk in chunks:
                heard.sent(chunk.seconds)
                reason = chunk.finish_reason.value if chunk.finish_reason else ""
                yield AudioChunk(
                    chunk.samples,
                    0.0,
                    reason,
                    chunk.spoken_characters,
                    spoken_tokens=chunk.spoken_tokens,
                )

    async def heard(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        """The chunks of a text as a front passes them on."""

        def ask(_tokens: Sequence[int], _start: int | None) -> AsyncGenerator[AudioChunk, None]:
            return self.spoken(text)

        async with aclosing(at_front_rate(unbroken(ask, print, len(text)))) as chunks:
            async for chunk in chunks:
                yield chunk


class StandIns:
    """Stages that speak so many tokens for each of the text, and keep nothing."""

    async def generate(
        self,
        prompt: Prompt,
        sampling: SamplingOptions,  # noqa: ARG002
        utterance_id: str,  # noqa: ARG002
        first_tokens: int,  # noqa: ARG002
        pieces: TextPieces | None,  # noqa: ARG002
        with_rows: bool,  # noqa: ARG002
    ) -> AsyncGenerator[TokenGroup, None]:
        """Groups of a block each."""
        left = round(TOKENS_OF_TEXT * len(prompt.text))
        while left:
            tokens = [1] * min(left, 25)
            left -= len(tokens)
            yield TokenGroup(tokens, drawn=tokens)
            await asyncio.sleep(0)
        yield TokenGroup([], FinishReason.STOP, drawn=[-1])

    async def wave(
        self,
        utterance_id: str,  # noqa: ARG002
        tokens: Sequence[int],
        position: int,  # noqa: ARG002
        last: bool,  # noqa: ARG002
        settings: WaveSettings,  # noqa: ARG002
        cushion_s: float,  # noqa: ARG002
    ) -> Floats:
        """A wave of one loudness."""
        return np.resize(np.array([0.1, -0.1], np.float32), len(tokens) * SAMPLES_OF_TOKEN)

    async def prepare(self, voice_key: str) -> None:
        """Do nothing."""

    def drop(self, utterance_id: str) -> None:
        """Do nothing."""


async def mebibytes(chunks: AsyncGenerator[AudioChunk, None]) -> list[float]:
    """Memory of this process after so many minutes of speech, and at its end."""
    sizes: list[float] = []
    seconds = 0.0
    async with aclosing(chunks):
        async for chunk in chunks:
            seconds += chunk.seconds
            if len(sizes) < len(MINUTES) and seconds >= 60 * MINUTES[len(sizes)]:
                sizes.append(resident())
    return [*sizes, resident()]


def resident() -> float:
    """The MiB of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


if __name__ == "__main__":
    main()
