"""How a voice is removed, whoever asks for it: a client of the API or the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.voice.digest import KEY
from cosyvoice_runtime.voice.names import checked_name
from cosyvoice_runtime.voice.records import VoiceRecords
from cosyvoice_runtime.voice.store import VoiceStore

Permission = Callable[[dict[str, Any] | None], bool]


def remove_voice(
    store: VoiceStore, records: VoiceRecords, name: str, allowed: Permission = lambda _: True
) -> None:
    """Forget a voice: its name, its networks' features with the last name, its recording and the consent.

    Args:
        name: of the voice, or its key, which removes all its names, of which it may have none.
        allowed: whether the voice of this record may be removed; None stands for a voice that nobody sent.

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
