"""Stores of voices, with and without a memory of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosyvoice_runtime.voice import VoiceStore
from fake_voices import open_store


@pytest.fixture(params=[0, 8], ids=["disk", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> VoiceStore:
    return open_store(tmp_path, memory_voices=request.param)
