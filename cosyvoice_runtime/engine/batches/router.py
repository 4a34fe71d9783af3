"""Which scheduler an utterance goes to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from operator import attrgetter

from cosyvoice_runtime.engine.batches.chunk import WaveChunk
from cosyvoice_runtime.engine.batches.preparation import Preparation
from cosyvoice_runtime.engine.batches.scheduler import WaveScheduler
from cosyvoice_runtime.engine.batches.service import WaveOutcome


class WaveRouter:
    """Passes the chunks of an utterance to one scheduler: the least loaded when its first chunk comes.

    Nothing is kept here: the schedulers know which utterances are theirs, so none can be lost or left over.

    Args:
        schedulers: one for each device, at least one.
        preparations: what makes ready beside work what they lack at first.
        at_end: called when they have ended.
    """

    def __init__(
        self,
        schedulers: Sequence[WaveScheduler],
        preparations: Sequence[Preparation] = (),
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._schedulers, self._preparations = schedulers, preparations
        self._at_end = at_end
        self._choosing = threading.Lock()

    def submit(self, chunk: WaveChunk, deliver: Callable[[WaveOutcome], None]) -> None:
        """See `WaveScheduler.submit`."""
        with self._choosing:  # two threads must not find two homes for one utterance
            self._home(chunk.utterance_id).submit(chunk, deliver)

    def prepare(self) -> None:
        """Begin with what is to be made ready beside work, once the process has loaded all that it needs."""
        for preparation in self._preparations:
            preparation.start()

    def close(self) -> None:
        """Compute what waits, then stop and free everything."""
        for scheduler in self._schedulers:
            scheduler.close()
        for preparation in self._preparations:
            preparation.close()
        self._at_end()

    def _home(self, utterance_id: str) -> WaveScheduler:
        if len(self._schedulers) == 1:
            return self._schedulers[0]
        for scheduler in self._schedulers:
            if scheduler.holds(utterance_id):
                return scheduler
        return min(self._schedulers, key=attrgetter("load"))
