"""Pages and voices of one scheduler, or of several that share them."""

from __future__ import annotations

from collections.abc import Hashable

from cosyvoice_runtime.engine.batches.crowd import Crowd
from cosyvoice_runtime.engine.batches.usage import MemoryMetrics, Usage
from cosyvoice_runtime.engine.batches.voices import VoiceCache
from cosyvoice_runtime.engine.runtimes.runtime import WaveRuntime
from cosyvoice_runtime.metrics import Metrics


class WaveMemory:
    """What outlives turns, how much of it the metrics show, and what goes back after a crowd.

    Args:
        runtime: of one of the schedulers.
        max_voices: that are kept.
        device: label of the metrics.

    Attributes:
        voices: that utterances are spoken in.
    """

    def __init__(self, runtime: WaveRuntime, max_voices: int, metrics: Metrics, device: str) -> None:
        self.voices = VoiceCache(runtime.token2wav.flow, max_voices)
        self._shown = MemoryMetrics(metrics, device, self.voices.usage)
        self._crowd = None if runtime.after_crowd is None else Crowd(runtime.after_crowd)

    def look(self, scheduler: Hashable, usage: Usage) -> None:
        """To be called after every change that a scheduler has made, from any thread."""
        self._shown.show()
        if self._crowd is not None:
            self._crowd.look(scheduler, usage)

    def close(self) -> None:
        """To be called when all schedulers have ended."""
        if self._crowd is not None:
            self._crowd.close()
