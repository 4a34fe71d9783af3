"""How soon speech begins when its text arrives word by word, against waiting for all of it.

Needs a running server: ``./run.sh 2 3``, or any other with the model ``cosyvoice2``.

    python benchmarks/arriving_text.py --url localhost:8001 --words-per-second 20

Each text is three sentences of held_out.json. Both ways count from the first word, and from the moment at
which the first sentence was known to be complete, which is when the next word came.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cosyvoice_client import AsyncSpeechClient, SpeechRequest, TextSpeech, Timeline
from measuring.figures import spread
from measuring.machine import provenance

SENTENCES = 3
FEWEST_WORDS = 5


@dataclass(frozen=True)
class Heard:
    """One text, in seconds.

    Attributes:
        from_first_word_s, from_first_clause_s: to the first audio.
        silences: gaps that a listener hears who plays at once.
    """

    from_first_word_s: float
    from_first_clause_s: float
    silences: int
    silent_s: float


def main() -> None:
    options = parse()
    rows = asyncio.run(measure(options, texts(options.script, options.texts)))
    report = {
        **provenance(),
        "words_per_second": options.words_per_second,
        "texts": options.texts,
        "ways": rows,
    }
    print(json.dumps(report, indent=1))
    if options.json:
        options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="localhost:8001")
    parser.add_argument("--voice", help="default: that of the server")
    parser.add_argument("--script", type=Path, default=Path("demo_voice/held_out.json"))
    parser.add_argument("--texts", type=int, default=10)
    parser.add_argument("--words-per-second", type=float, default=20.0)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    return parser.parse_args()


def texts(script: Path, count: int) -> list[list[str]]:
    """Sentences of each text."""
    sentences = [text for text in json.loads(script.read_text("utf-8")) if len(text.split()) >= FEWEST_WORDS]
    return [sentences[SENTENCES * index :][:SENTENCES] for index in range(count)]


async def measure(options: argparse.Namespace, given: Sequence[Sequence[str]]) -> dict[str, object]:
    """Figures of both ways, one text after the other."""
    found: dict[str, list[Heard]] = {"arriving": [], "whole": []}
    request = SpeechRequest("", voice=options.voice, seed=1)
    async with AsyncSpeechClient(options.url) as client:
        for number, sentences in enumerate([given[0], *given]):  # the first one is for warming up
            trial = Trial(client, sentences, options.words_per_second, request)
            for way, heard in (("arriving", await trial.arriving()), ("whole", await trial.whole())):
                if number:
                    found[way].append(heard)
    return {way: figures(rows) for way, rows in found.items()}


def figures(rows: Sequence[Heard]) -> dict[str, object]:
    """Spreads in milliseconds, and what a listener hears of it."""
    return {
        "from_first_word_ms": spread([row.from_first_word_s for row in rows]),
        "from_first_clause_ms": spread([row.from_first_clause_s for row in rows]),
        "silences": sum(row.silences for row in rows),
        "silent_s": round(sum(row.silent_s for row in rows), 3),
    }


class Trial:
    """One text, said in both ways."""

    def __init__(
        self, client: AsyncSpeechClient, sentences: Sequence[str], words_per_s: float, request: SpeechRequest
    ) -> None:
        self._client = client
        self._words = [f"{word} " for word in " ".join(sentences).split()]
        self._clause = len(sentences[0].split())
        self._words_per_s = words_per_s
        self._request = request

    async def arriving(self) -> Heard:
        """Each word is pushed when it comes."""
        timeline = Timeline()
        async with self._client.speak_text(self._request) as speech:
            started = time.perf_counter()
            feeding = asyncio.create_task(self._feed(speech, started))
            async for chunk in speech:
                timeline.add(time.perf_counter() - started, chunk.seconds)
            await feeding
        return self._heard(timeline)

    async def whole(self) -> Heard:
        """The request is sent when the last word has come."""
        timeline = Timeline()
        started = time.perf_counter()
        await self._until(started, len(self._words) - 1)
        request = SpeechRequest("".join(self._words), voice=self._request.voice, seed=1)
        async for chunk in self._client.speak(request):
            timeline.add(time.perf_counter() - started, chunk.seconds)
        return self._heard(timeline)

    async def _feed(self, speech: TextSpeech, started: float) -> None:
        for number, word in enumerate(self._words):
            await self._until(started, number)
            await speech.push(word)
        await speech.end()

    async def _until(self, started: float, word: int) -> None:
        """The time at which a word comes."""
        await asyncio.sleep(max(0.0, started + word / self._words_per_s - time.perf_counter()))

    def _heard(self, timeline: Timeline) -> Heard:
        first_s = timeline.ttfb_s or 0.0
        clause_s = self._clause / self._words_per_s
        return Heard(first_s, first_s - clause_s, len(timeline.underruns_s), sum(timeline.underruns_s))


if __name__ == "__main__":
    main()
