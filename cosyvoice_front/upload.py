"""The record of a voice that a client has sent, kept beside the voice itself."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Upload:
    """The record kept beside a voice.

    Attributes:
        owner: name of the key that sent it.
        public: whether other keys may speak with it.
        consent: in whose words the speaker agreed.
        recording: SHA-256 of what was sent.
    """

    name: str
    owner: str
    public: bool
    consent: str
    ref_text: str
    created_at: int
    recording: str

    def shown(self) -> dict[str, Any]:
        """As the API lists it."""
        return {
            "object": "audio.voice",
            "id": self.name,
            "name": self.name,
            "owner": self.owner,
            "public": self.public,
            "created_at": self.created_at,
        }

    def open_to(self, owner: str | None) -> bool:
        return self.public or self.owner == owner


def new_upload(
    name: str, owner: str, recording: bytes, *, ref_text: str, consent: str, public: bool
) -> Upload:
    digest = hashlib.sha256(recording).hexdigest()
    return Upload(name, owner, public, consent, ref_text, int(time.time()), digest)
