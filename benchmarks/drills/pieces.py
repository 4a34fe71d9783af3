"""Texts in pieces before three servers: by both sockets, and by other people's plugins for Cartesia."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle, islice
from typing import Any

from drills.front import Front
from drills.listeners import RATE, TIMEOUT_S, difference
from drills.outcome import Outcome
from drills.wires import SOCKETS

AT_ONCE = 8
"""Utterances at a time, of twelve places."""
TEXT = "It is late; go on."
LEAST_S = 1.0
"""The plugins know no seed, and so each of their utterances is another speech, but none is shorter."""
SPOKEN = ("cosyvoice_front_utterances_total", 'ending="spoken"')
Drill = Callable[[Sequence[Front], int, Front], Outcome]


def by_socket(name: str) -> Drill:
    """Whether texts over this socket are the speech of a server that is alone."""

    def drill(fronts: Sequence[Front], count: int, alone: Front) -> Outcome:
        say = SOCKETS[name]
        expected = say(alone)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            heard = list(pool.map(say, islice(cycle(fronts), count)))
        outcome = Outcome(requests=count, audio_s=sum(len(each) for each in heard) / RATE)
        outcome.faults += [fault for each in heard if (fault := difference(each, expected))]
        return outcome

    return drill


def by_livekit(fronts: Sequence[Front], count: int, alone: Front) -> Outcome:  # noqa: ARG001
    """Whether LiveKit's plugin gets each text whole: all words in order, and their speech."""
    from drills import livekit_plugin

    options = livekit_plugin.once(timeout_s=TIMEOUT_S)

    async def some(tts: Any, number: int) -> list[str]:
        faults = []
        for _ in range(number):
            samples, words = await livekit_plugin.stream(tts, TEXT, options)
            faults += _not_whole("".join(words).split(), len(samples))
        return faults

    async def all_of_them(tts: Any) -> list[str]:
        shares = await asyncio.gather(
            *(some(tts, len(range(count)[part::AT_ONCE])) for part in range(AT_ONCE))
        )
        return [fault for share in shares for fault in share]

    before = _spoken(fronts)
    faults = livekit_plugin.speaking(fronts[0], all_of_them, api_key="none")
    return _counted(fronts, before, count, faults)


def by_pipecat(fronts: Sequence[Front], count: int, alone: Front) -> Outcome:  # noqa: ARG001
    """Whether Pipecat's service gets each text whole, one after the other over one socket."""
    from pipecat.frames.frames import ErrorFrame, TTSSpeakFrame, TTSTextFrame

    from drills import pipecat_plugin

    faults: list[str] = []

    async def play(worker: Any, ear: pipecat_plugin.Ear, up: pipecat_plugin.Ear) -> None:
        for _ in range(count):
            words, samples = len(ear.of(TTSTextFrame)), ear.samples
            wanted = words + len(TEXT.split())
            await worker.queue_frame(TTSSpeakFrame(TEXT))
            await ear.until(partial(_has, ear, TTSTextFrame, wanted))
            told = [frame.text for frame in ear.of(TTSTextFrame)[words:]]
            faults.extend(_not_whole(told, ear.samples - samples))
        faults.extend(str(frame.error) for frame in up.of(ErrorFrame))

    before = _spoken(fronts)
    pipecat_plugin.run(lambda: pipecat_plugin.service(fronts[0], "none"), play)
    return _counted(fronts, before, count, faults)


WAYS: dict[str, Drill] = {
    "Cartesia's socket": by_socket("cartesia"),
    "vllm-omni's socket": by_socket("omni"),
    "LiveKit's plugin": by_livekit,
    "Pipecat's plugin": by_pipecat,
}
PACKAGES = {
    "LiveKit's plugin": ("aiohttp", "livekit.agents", "livekit.plugins.cartesia"),
    "Pipecat's plugin": ("loguru", "pipecat.services.cartesia.tts"),
}
"""Modules that a way needs beside the product's own."""


def _has(ear: Any, kind: type, count: int) -> bool:
    return len(ear.of(kind)) >= count


def _not_whole(words: list[str], samples: int) -> list[str]:
    if words != TEXT.split():
        return [f"words {words}"]
    return [] if samples / RATE >= LEAST_S else [f"{samples} samples"]


def _spoken(fronts: Sequence[Front]) -> int:
    """Utterances that were spoken to their end, so far."""
    return round(sum(front.number(*SPOKEN) for front in fronts))


def _counted(fronts: Sequence[Front], before: int, count: int, faults: list[str]) -> Outcome:
    spoken = _spoken(fronts) - before
    complaint = [] if spoken == count else [f"the fronts count {spoken} utterances that were spoken"]
    return Outcome(requests=count, faults=[*faults, *complaint])
