"""The schedulers of all devices: each utterance goes to one, and preparations go on during service."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from operator import attrgetter

from cosyvoice_runtime.engine.batches.chunk import WaveChunk, WaveOutcome
from cosyvoice_runtime.engine.batches.memory import WaveMemory
from cosyvoice_runtime.engine.batches.scheduler import WaveScheduler
from cosyvoice_runtime.gpu.partitions.shared_gpu import Later

logger = logging.getLogger(__name__)


class WaveRouter:
    """Passes the chunks of an utterance to the scheduler that is least loaded when its first chunk comes.

    The router keeps nothing: the schedulers know which utterances are theirs, so none can be lost or left
    over.

    Args:
        schedulers: one for each device, at least one.
        preparations: threads that capture calls during service.
        memories: memories that are closed after the schedulers.
    """

    def __init__(
        self,
        schedulers: Sequence[WaveScheduler],
        preparations: Sequence[Preparation] = (),
        memories: Sequence[WaveMemory] = (),
    ) -> None:
        self._schedulers, self._preparations = schedulers, preparations
        self._memories = memories
        self._choosing = threading.Lock()

    def submit(self, chunk: WaveChunk, deliver: Callable[[WaveOutcome], None]) -> None:
        """Submit a chunk as :meth:`WaveScheduler.submit` does."""
        with self._choosing:  # Two threads must not choose two schedulers for one utterance.
            self._home(chunk.utterance_id).submit(chunk, deliver)

    def prepare(self) -> None:
        """Begin the preparations, after the process has loaded everything else."""
        for preparation in self._preparations:
            preparation.start()

    def close(self) -> None:
        """Compute what waits, then stop and free everything."""
        for scheduler in self._schedulers:
            scheduler.close()
        for preparation in self._preparations:
            preparation.close()
        for memory in self._memories:
            memory.close()

    def _home(self, utterance_id: str) -> WaveScheduler:
        if len(self._schedulers) == 1:
            return self._schedulers[0]
        for scheduler in self._schedulers:
            if scheduler.holds(utterance_id):
                return scheduler
        return min(self._schedulers, key=attrgetter("load"))


class Preparation:
    """A thread that captures calls during service, and rests as long after each as it took.

    Args:
        later: the steps, one after the other, which are then forgotten.
        on_ready: called after the last step; what fails stays missing.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        later: Sequence[Later],
        on_ready: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._later, self._on_ready, self._clock = [*later], on_ready, clock
        self._begun_s = 0.0
        self._closed = threading.Event()
        # A daemon does not outlive the process, even if it is never closed.
        self._thread = threading.Thread(target=self._run, name="token2wav-later", daemon=True)

    def start(self) -> None:
        """Begin, or do nothing if no step is missing."""
        if self._later:
            self._thread.start()
        else:
            self._on_ready()

    def close(self) -> None:
        """End after the step under way; harmless when repeated."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        self._begun_s = self._clock()
        try:
            while self._later:
                self._later.pop(0)(self._rest)
        except _ClosedError:
            return
        except Exception:
            logger.exception("what was to be prepared during service is missing, and stays so")
            return
        self._on_ready()

    def _rest(self) -> None:
        """Leave Python's lock to other threads for a while."""
        if self._closed.wait(self._clock() - self._begun_s):
            raise _ClosedError
        self._begun_s = self._clock()


class _ClosedError(Exception):
    """The preparation was closed."""
