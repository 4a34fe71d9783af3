#!/usr/bin/env python3
"""Whether a request that is repeated gives the same speech: alone, and among other requests; and whether one
goes on that is asked for again with the speech tokens of its first half.

    python benchmarks/repetitions.py --url localhost:8001 --among 3,15,47 --output repetitions.json

A front goes on with a stream whose server was lost by asking another one for the same speech, with the tokens
that the lost one told, so that this says how often it can. Of each request the first sample that differs by
more than rounding is shown, or the largest difference of those that don't: of the whole speech, or of the
first half where its tokens were handed over.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from client_server import numbers
from cosyvoice_client import AsyncSpeechClient, AudioChunk, SpeechRequest
from cosyvoice_front.resume import TOLERANCE, DifferentSpeechError, HeardSpeech
from measuring.machine import provenance
from measuring.report import table

TEXT = "The quick brown fox jumps over the lazy dog while seven wizards look on. " * 2
SETTLE_S = 3.0
"""The time that others have to begin before a request comes among them."""
NOISE_SEED = 1_000_000
"""Seeds from here on are of others."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="localhost:8001", help="gRPC (%(default)s)")
    parser.add_argument("--requests", type=int, default=6, help="with a seed each (%(default)s)")
    parser.add_argument("--among", type=numbers(int), default=[3, 15], metavar="N,N", help="other requests")
    parser.add_argument("--max-tokens", type=int, default=250, help="of a request (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("repetitions.json"))
    given = parser.parse_args(arguments)
    found = asyncio.run(_measure(given.url, given.requests, given.among, given.max_tokens))
    rows = [[name, *_summary(repeated)] for name, repeated in found.items()]
    print(table(["repeated", "same", "largest difference of these", "first samples that differ"], rows))
    gone_on = {name: rows for name, rows in found.items() if "joined" in rows[0]}
    rows = [[name, f"{sum(row['joined'] for row in each)} of {len(each)}"] for name, each in gone_on.items()]
    print(table(["gone on with", "joined by a front"], rows))
    given.output.write_text(json.dumps({"measured": provenance(), "repetitions": found}, indent=1) + "\n")
    return 0


async def _measure(
    url: str, requests: int, among: Sequence[int], max_tokens: int
) -> dict[str, list[dict[str, Any]]]:
    async with AsyncSpeechClient(url) as client:

        async def chunks(seed: int, spoken: Sequence[int] | None = None) -> list[AudioChunk]:
            request = SpeechRequest(TEXT, seed=seed, max_tokens=max_tokens, spoken_tokens=spoken)
            return [chunk async for chunk in client.speak(request)]

        async def speak(seed: int) -> Any:
            return np.concatenate([chunk.samples for chunk in await chunks(seed)])

        async def repeated() -> list[dict[str, Any]]:
            return [difference(first, await speak(seed)) for seed, first in enumerate(alone)]

        async def resumed() -> list[dict[str, Any]]:
            found = []
            for seed in range(requests):
                uncut = await chunks(seed, ())
                heard = uncut[: len(uncut) // 2]
                found.append(gone_on(uncut, heard, await chunks(seed, tokens_of(heard))))
            return found

        @asynccontextmanager
        async def others(count: int) -> AsyncIterator[None]:
            seeds, stop = itertools.count(NOISE_SEED), asyncio.Event()

            async def go_on() -> None:
                while not stop.is_set():
                    await speak(next(seeds))

            speaking = [asyncio.create_task(go_on()) for _ in range(count)]
            await asyncio.sleep(SETTLE_S)
            yield
            stop.set()
            await asyncio.gather(*speaking)

        alone = [await speak(seed) for seed in range(requests)]
        found = {"alone": await repeated(), "alone, with tokens": await resumed()}
        for count in among:
            async with others(count):
                found[f"among {count} others"] = await repeated()
                found[f"among {count} others, with tokens"] = await resumed()
        return found


def tokens_of(chunks: Sequence[AudioChunk]) -> list[int]:
    """All that the chunks tell of speech tokens."""
    return [token for chunk in chunks for token in chunk.spoken_tokens]


def gone_on(
    uncut: Sequence[AudioChunk], heard: Sequence[AudioChunk], again: Sequence[AudioChunk]
) -> dict[str, Any]:
    """How speech differs that goes on from the tokens of the first chunks: as `difference` where it had been
    heard, whether a front joins it, and how many tokens were handed over, came, and came as uncut."""
    before, after = (np.concatenate([chunk.samples for chunk in chunks]) for chunks in (heard, again))
    whole, told = tokens_of(uncut), tokens_of(again)
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(whole, told, strict=False))
    tokens = {"handed over": len(tokens_of(heard)), "came": len(told), "as uncut": len([*same])}
    return {**difference(before, after[: len(before)]), "joined": joins(heard, again), "tokens": tokens}


def joins(heard: Sequence[AudioChunk], again: Sequence[AudioChunk]) -> bool:
    """Whether a front that has sent the first chunks goes on with these."""
    speech = HeardSpeech()
    for chunk in heard:
        speech.new(chunk)
    speech.begin_again()
    try:
        for chunk in again:
            speech.new(chunk)
        speech.end()
    except DifferentSpeechError:
        return False
    return True


def difference(first: Any, again: Any) -> dict[str, Any]:
    """How two waveforms differ: samples of each, the largest difference, and where it is no rounding."""
    length = min(len(first), len(again))
    apart = np.abs(first[:length] - again[:length])
    wrong = np.flatnonzero(apart > TOLERANCE)
    ends = length if len(first) != len(again) else None
    return {
        "samples": [len(first), len(again)],
        "largest": float(apart.max(initial=0.0)),
        "first_different": int(wrong[0]) if len(wrong) else ends,
    }


def _summary(repeated: Sequence[dict[str, Any]]) -> list[str]:
    same = [each for each in repeated if each["first_different"] is None]
    others = sorted(each["first_different"] for each in repeated if each["first_different"] is not None)
    largest = f"{max((each['largest'] for each in same), default=0.0):.1e}" if same else "-"
    return [f"{len(same)} of {len(repeated)}", largest, ", ".join(map(str, others)) or "-"]


if __name__ == "__main__":
    raise SystemExit(main())
