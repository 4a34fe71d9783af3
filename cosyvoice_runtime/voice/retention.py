"""Voices of requests' references, which are kept for a while."""

from __future__ import annotations

import logging
import time
from threading import Thread

from cosyvoice_runtime.errors import StorageError
from cosyvoice_runtime.voice.store import VoiceStore

logger = logging.getLogger(__name__)

DAY_S = 86_400.0
INTERVAL_S = 600.0
"""Longest time between two looks for voices that nobody uses any more."""


def forget_in_time(store: VoiceStore, unused_s: float) -> None:
    """From now on, as long as the process lives, forget voices without a name that were unused for so long.

    With 0 those that an earlier run has left are forgotten, once: none is written any more.
    """
    Thread(target=_forget, args=(store, unused_s), name="retention", daemon=True).start()


def _forget(store: VoiceStore, unused_s: float) -> None:
    while True:
        try:
            if count := store.forget_unnamed(unused_s):
                logger.info("%d voices of references were forgotten", count)
        except StorageError:  # logged where it was met
            pass
        if not unused_s:
            return
        time.sleep(min(unused_s, INTERVAL_S))
