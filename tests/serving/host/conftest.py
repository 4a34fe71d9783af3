"""Models whose requests tests answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from asked_models import (
    TwoModels,
)

from cosyvoice_runtime.serving.host import host_client


@pytest.fixture
def host(tmp_path: Path) -> Iterator[TwoModels]:
    models = TwoModels(tmp_path / "networks")
    yield models
    models.host.close()


@pytest.fixture
def connections(monkeypatch) -> list[Path]:
    """One more for each that is made."""
    made: list[Path] = []
    connect = host_client._connected
    monkeypatch.setattr(host_client, "_connected", lambda path: made.append(path) or connect(path))
    return made
