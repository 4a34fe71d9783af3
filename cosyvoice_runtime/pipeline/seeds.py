"""Independent random sequences of one utterance, all following from its seed."""

from __future__ import annotations

import hashlib
import secrets


def fresh_seed() -> int:
    """A seed nobody can foresee, 0 to 2**63 - 1."""
    return secrets.randbits(63)


def derived_seed(seed: int, purpose: str, segment: int) -> int:
    """Seed of one purpose in one segment, 0 to 2**63 - 1; unrelated to that of any other."""
    digest = hashlib.sha256(f"{seed}/{purpose}/{segment}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
