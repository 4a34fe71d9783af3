"""The memory of one scheduler, or of several that share it: voices, pages, and its trim when idle."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

from cosyvoice_runtime.engine.batches.usage import MemoryMetrics, Usage, WaveMetrics
from cosyvoice_runtime.engine.batches.voices import VoiceCache
from cosyvoice_runtime.engine.runtimes.runtime import WaveRuntime
from cosyvoice_runtime.metrics import Metrics

QUIET_S = 1.0
"""Time after which nothing of the last batch is held, and utterances that follow at once have begun."""
LONE_QUIET_S = 30.0
"""Time after which the memory of single utterances is trimmed; a client that speaks alone sends its next one
sooner."""


class WaveMemory:
    """Voices and pages, which outlive batches; shows their use, and trims them.

    Args:
        runtime: the runtime of one of the schedulers.
        max_voices: voices that are kept.
        device: label of the metrics.

    Attributes:
        voices: voices of utterances.
    """

    def __init__(self, runtime: WaveRuntime, max_voices: int, metrics: Metrics, device: str) -> None:
        self.voices = VoiceCache(runtime.token2wav.flow, max_voices)
        self._shown = MemoryMetrics(metrics, device, self.voices.usage)
        self._trim = None if runtime.trim is None else Trim(runtime.trim)

    def look(self, metrics: WaveMetrics, usage: Usage) -> None:
        """Show the changes that the scheduler with these metrics has made; for any thread."""
        metrics.show(usage)
        self._shown.show()
        if self._trim is not None:
            self._trim.look(metrics, usage)

    def close(self) -> None:
        """End, after all schedulers have ended."""
        if self._trim is not None:
            self._trim.close()


class Trim:
    """Gives memory back when no utterance is in progress: soon after several at once, later after single
    ones.

    Args:
        give_back: called then in a thread of its own, for which :meth:`look` waits.
        quiet_s: time without an utterance after several at once.
        lone_quiet_s: time without an utterance after one at a time.
    """

    def __init__(
        self,
        give_back: Callable[[], None],
        quiet_s: float = QUIET_S,
        lone_quiet_s: float = LONE_QUIET_S,
    ) -> None:
        self._give_back = give_back
        self._quiet_s, self._lone_quiet_s = quiet_s, lone_quiet_s
        self._most = 0
        self._speaking: dict[Hashable, int] = {}
        self._opened: dict[Hashable, int] = {}
        self._timer: threading.Timer | None = None
        self._closed = False
        self._lock = threading.Lock()

    def look(self, scheduler: Hashable, usage: Usage) -> None:
        """Note the usage after a batch of any scheduler; for any thread."""
        with self._lock:
            opened = usage.voice_hits + usage.voice_misses
            self._speaking[scheduler] = usage.utterances
            # Some utterances begin and end within one batch.
            in_batch = opened - self._opened.get(scheduler, 0)
            self._opened[scheduler] = opened
            speaking = sum(self._speaking.values())
            self._most = max(self._most, speaking, in_batch)
            if speaking or in_batch or self._closed:
                self._stop()
            if not speaking and self._most and self._timer is None and not self._closed:
                quiet_s = self._quiet_s if self._most > 1 else self._lone_quiet_s
                timer = threading.Timer(quiet_s, self._ring)
                timer.daemon = True
                timer.start()
                self._timer = timer  # A timer that fails to start is not kept.

    def close(self) -> None:
        """End, after memory that is being given back is back."""
        with self._lock:
            self._closed = True
            self._stop()

    def _stop(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _ring(self) -> None:
        with self._lock:
            # If an utterance began just now, the next look that finds all quiet sets another timer.
            if threading.current_thread() is self._timer:
                self._timer, self._most = None, 0
                self._give_back()
