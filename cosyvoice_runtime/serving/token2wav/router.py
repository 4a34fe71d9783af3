"""Utterances on several devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from cosyvoice_runtime.serving.token2wav.chunk import WaveChunk
from cosyvoice_runtime.serving.token2wav.scheduler import WaveScheduler
from cosyvoice_runtime.serving.token2wav.service import WaveOutcome


class WaveRouter:
    """Passes the chunks of an utterance to one scheduler: the least loaded when its first chunk comes.

    Nothing is kept here: the schedulers know which utterances are theirs, so none can be lost or left over.

    Args:
        schedulers: one for each device, at least one.
    """

    def __init__(self, schedulers: Sequence[WaveScheduler]) -> None:
        self._schedulers = schedulers

    def submit(self, chunk: WaveChunk, deliver: Callable[[WaveOutcome], None]) -> None:
        """See `WaveScheduler.submit`. To be called by one thread."""
        self._home(chunk.utterance_id).submit(chunk, deliver)

    def close(self) -> None:
        """Compute what waits, then stop and free everything."""
        for scheduler in self._schedulers:
            scheduler.close()

    def _home(self, utterance_id: str) -> WaveScheduler:
        for scheduler in self._schedulers:
            if scheduler.holds(utterance_id):
                return scheduler
        return min(self._schedulers, key=attrgetter("load"))
