"""What is in use of the cache whose pages requests share."""

from __future__ import annotations

from cosyvoice_runtime.lm.cache_slots import CacheUse
from cosyvoice_runtime.metrics import Metrics


class CacheMetrics:
    """Called with a cache's use after each step, by one thread; told anew, counters go on."""

    def __init__(self, metrics: Metrics) -> None:
        self._pages = metrics.gauge("cosyvoice_lm_cache_pages", "Pages of the speech LM's cache.")
        self._held = metrics.gauge("cosyvoice_lm_cache_pages_in_use", "Pages that requests hold.")
        self._without = metrics.gauge(
            "cosyvoice_lm_requests_without_pages", "Requests with a slot that hold no page."
        )
        self._evictions = metrics.counter(
            "cosyvoice_lm_evictions_total", "Requests whose pages others got, and that are fed again."
        )
        self._recomputed = metrics.counter(
            "cosyvoice_lm_recomputed_positions_total", "Positions fed again because of that."
        )
        self._told = CacheUse(0, 0, 0, 0, 0)

    def opened(self) -> None:
        """A new cache counts from 0."""
        self._told = self._told._replace(evictions=0, recomputed=0)

    def __call__(self, use: CacheUse) -> None:
        told, self._told = self._told, use
        if use == told:
            return
        self._pages.set(use.pages)
        self._held.set(use.held)
        self._without.set(use.without)
        self._evictions.add(use.evictions - told.evictions)
        self._recomputed.add(use.recomputed - told.recomputed)
