"""Removal of voices: by a client of the API, by the command line, or because nobody uses them."""

from __future__ import annotations

import logging
import time
from threading import Thread
from typing import TYPE_CHECKING

from cosyvoice_runtime.errors import InvalidInput, StorageError
from cosyvoice_runtime.voice.digest import KEY
from cosyvoice_runtime.voice.names import checked_name
from cosyvoice_runtime.voice.records import Permission, VoiceRecords
from cosyvoice_runtime.voice.store import VoiceStore

if TYPE_CHECKING:
    from cosyvoice_runtime.voice.cached_voices import CachedVoices


def remove_voice(
    store: VoiceStore, records: VoiceRecords, name: str, allowed: Permission = lambda _: True
) -> None:
    """Forget a voice: its name, its networks' features with the last name, its recording and the consent.

    Args:
        name: of the voice, or its key, which removes all its names, of which it may have none.
        allowed: whether it may be removed.

    Raises:
        InvalidInput: there is no such voice, or it may not be removed.
        StorageError, OSError: the directory can't be written.
    """
    with records.locked():
        names = store.names_of(name)
        if not names and not KEY.fullmatch(name):
            names = (checked_name(name),)
        kept = [record for each in names if (record := records.read(each)) is not None]
        if not (all(map(allowed, kept)) if kept else allowed(None)):
            raise InvalidInput("voice", name, "it is the voice of another key")
        try:
            store.delete(name)
        except InvalidInput:
            if not kept:
                raise
        for record in kept:
            records.remove(record)


logger = logging.getLogger(__name__)

DAY_S = 86_400.0
INTERVAL_S = 600.0
"""Longest time between two looks for voices that nobody uses any more."""


def forget_in_time(store: VoiceStore | CachedVoices, unused_s: float) -> None:
    """Forget voices without a name that were unused for so long, as long as the process lives.

    With 0 those that an earlier run has left are forgotten: none is written any more.
    """
    Thread(target=_forget, args=(store, unused_s), name="retention", daemon=True).start()


def _forget(store: VoiceStore | CachedVoices, unused_s: float) -> None:
    while True:
        try:
            if count := store.forget_unnamed(unused_s):
                logger.info("%d voices of references were forgotten", count)
        except StorageError:  # logged where it was met
            pass
        time.sleep(min(unused_s, INTERVAL_S) or INTERVAL_S)
