"""The script of stage 0 and the hubs that it asks."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from making import make_checkpoint

if TYPE_CHECKING:  # other tests of scripts need no hub's client
    from fake_hub import Hub

ROOT = Path(__file__).parents[2]


@pytest.fixture
def fetching() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fetch_checkpoint", ROOT / "scripts/fetch_checkpoint.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``published(family)``: a small checkpoint as a hub has it, made once."""

    @cache
    def made(family: str) -> Path:
        out = make_checkpoint(tmp_path_factory.mktemp("hub") / family, "tiny", seed=0, family=family)
        (out / "SHA256SUMS").unlink()
        return out

    return made


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, published: Callable[[str], Path]) -> Hub:
    from fake_hub import Hub, ModelScope

    hub = Hub(published)
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: hub)
    monkeypatch.setattr("huggingface_hub.snapshot_download", hub.snapshot_download)
    other = ModelScope(hub)
    modules = [ModuleType(name) for name in ("modelscope", "modelscope.hub", "modelscope.hub.api")]
    modules[0].snapshot_download = other.snapshot_download  # type: ignore[attr-defined]
    modules[2].HubApi = lambda: other  # type: ignore[attr-defined]
    for module in modules:
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return hub


@pytest.fixture
def unreachable(hub: Hub) -> Hub:
    import httpx2

    hub.error = httpx2.ConnectError("Name or service not known")
    return hub
