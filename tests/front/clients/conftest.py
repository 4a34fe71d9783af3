"""Fronts as other people's clients meet them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from known_key import KEY

from cosyvoice_client import RefusedError, UnavailableError
from cosyvoice_front import errors
from cosyvoice_front.keys import digest
from fake_upstream import FakeUpstream

if TYPE_CHECKING:
    from pathlib import Path

    from front_server import RunningFront

RETRY_MS = 1


@pytest.fixture
def front(start_front, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunningFront:
    """A front that asks for a key and wants to be asked again soon."""
    monkeypatch.setattr(errors, "RETRY_AFTER_MS", RETRY_MS)
    keys = tmp_path / "keys"
    keys.write_text(f"anna sha256:{digest(KEY)}\n")
    return start_front(api_keys_file=keys)


@pytest.fixture
def crowded(upstream: FakeUpstream) -> FakeUpstream:
    """The speech server when it is full."""
    upstream.error = UnavailableError(f"{upstream.url}: 8 utterances are in progress; try again in 1 s")
    return upstream


@pytest.fixture
def without_voice(upstream: FakeUpstream) -> FakeUpstream:
    """The speech server when it doesn't know the voice."""
    message = f"{upstream.url}: voice: 'alloy' is not accepted; no voice has a name yet"
    upstream.error = RefusedError(message, "invalid_argument")
    return upstream
