"""The voices that a key may speak with."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from cosyvoice_front.errors import voice_not_found
from cosyvoice_runtime.settings import FrontSettings
from cosyvoice_runtime.settings.front import DEFAULT_VOICE

if TYPE_CHECKING:
    from cosyvoice_front.uploads import Uploads

CONTENT_KEY = re.compile(r"[0-9a-fA-F]{64}")
"""By which the server knows any voice, whoever's it is; here voices have names alone."""


class Voices:
    """Names of voices, as the server knows them.

    Attributes:
        uploads: voices that clients have sent; None where none can be.
    """

    def __init__(self, settings: FrontSettings, uploads: Uploads | None) -> None:
        self._aliases = settings.voices_by_alias
        self.uploads = uploads

    async def server_name(self, asked: str | None, owner: str) -> str | None:
        """The server's name of a voice; None for its default one. Whether it has it, it says itself.

        Raises:
            ApiError: the voice is somebody else's.
        """
        asked = asked or DEFAULT_VOICE
        name = self._aliases.get(asked, asked)
        if name == DEFAULT_VOICE:
            return None
        if CONTENT_KEY.fullmatch(name.strip()):
            raise voice_not_found(name)
        if self.uploads is not None and not await asyncio.to_thread(self.uploads.usable, name, owner):
            raise voice_not_found(name)
        return name

    async def listed(self, owner: str | None) -> list[dict[str, Any]]:
        """Every voice that a key may speak with; without a key, those that everybody may."""
        aliases = [_entry(name) for name in (DEFAULT_VOICE, *self._aliases)]
        if self.uploads is None:
            return aliases
        return [*aliases, *await asyncio.to_thread(self.uploads.listed, owner)]

    def is_taken(self, name: str) -> bool:
        """Whether it is a name that an upload can't have."""
        return name == DEFAULT_VOICE or name in self._aliases


def _entry(name: str) -> dict[str, Any]:
    return {"object": "audio.voice", "id": name, "name": name, "owner": "system"}
