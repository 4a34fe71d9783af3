"""Stores of voices, with and without a memory of their own, and a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cosyvoice_runtime.voice import VoiceStore
from drills import bucket as s3
from fake_voices import open_store
from running_bucket import fresh_url, running_bucket


@pytest.fixture(params=[0, 8], ids=["disk", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> VoiceStore:
    return open_store(tmp_path, memory_voices=request.param)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.Bucket]:
    with running_bucket(tmp_path_factory.mktemp("bucket")) as server:
        yield server


@pytest.fixture
def url(server: s3.Bucket, monkeypatch: pytest.MonkeyPatch) -> str:
    return fresh_url(server, monkeypatch)
