"""The voices that a key may speak with."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cosyvoice_front.errors import ApiError, voice_not_found
from cosyvoice_front.turns import at_turn
from cosyvoice_runtime.settings import FrontSettings
from cosyvoice_runtime.settings.front import DEFAULT_VOICE
from cosyvoice_runtime.text.markup.ssml import MOST_VOICES

if TYPE_CHECKING:
    from cosyvoice_front.uploads import Uploads

CONTENT_KEY = re.compile(r"[0-9a-fA-F]{64}")
"""By which the server knows any voice, whoever's it is; here voices have names alone."""
_NAMED = re.compile(r"""<voice\s[^<>]{0,1000}?\bname\s*=\s*("[^"<]{0,200}"|'[^'<]{0,200}')""")


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

    async def of_text(self, text: str, owner: str) -> dict[str, str]:
        """The server's names of the voices that ``<voice name>`` in a text names, empty for the default one.

        What the key may not speak with is not among them, so that the server refuses it by its name.

        Raises:
            ApiError: the voices are away.
        """
        return await self._usable(_named(text), owner)

    async def of_turns(self, turns: Sequence[Mapping[str, str]], owner: str) -> dict[str, str]:
        """The server's names of the voices that turns name, and of those in their texts.

        Raises:
            ApiError: the voice of a turn is somebody else's, or the voices are away.
        """
        spoken = {}
        for number, turn in enumerate(turns):
            name = turn["voice"]
            if name not in spoken:
                try:
                    spoken[name] = await self.server_name(name, owner) or ""
                except ApiError as error:
                    raise at_turn(number, error) from None
        named = {name for turn in turns for name in _named(turn["text"])}
        return await self._usable(sorted(named - {*spoken}), owner) | spoken

    async def of_pieces(self, markup: str | None, owner: str) -> dict[str, str]:
        """Voices that a text in pieces may name: all that is listed if it is SSML, else none."""
        if markup != "ssml":
            return {}
        aliases = await self._usable([DEFAULT_VOICE, *self._aliases], owner)
        listed = (entry["name"] for entry in await self.listed(owner))
        return {name: name for name in listed if not self.is_taken(name)} | aliases

    async def _usable(self, names: list[str], owner: str) -> dict[str, str]:
        found = {}
        for name in names:
            try:
                found[name] = await self.server_name(name, owner) or ""
            except ApiError as error:
                if error.param is None:  # The voices are away.
                    raise
        return found

    async def listed(self, owner: str | None) -> list[dict[str, Any]]:
        """Every voice that a key may speak with; without a key, those that everybody may."""
        aliases = [_entry(name) for name in (DEFAULT_VOICE, *self._aliases)]
        if self.uploads is None:
            return aliases
        return [*aliases, *await asyncio.to_thread(self.uploads.listed, owner)]

    def is_taken(self, name: str) -> bool:
        """Whether it is a name that an upload can't have."""
        return name == DEFAULT_VOICE or name in self._aliases


def _named(text: str) -> list[str]:
    """The names in ``<voice name>`` of a text, as many as the server takes of one."""
    names = {html.unescape(found[1:-1]).strip() for found in _NAMED.findall(text)}
    return sorted(names - {""})[:MOST_VOICES]


def _entry(name: str) -> dict[str, Any]:
    return {"object": "audio.voice", "id": name, "name": name, "owner": "system"}
