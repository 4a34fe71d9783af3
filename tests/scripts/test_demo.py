"""What scripts/demo.py says when its front can't serve."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("fastapi", reason="needs the environment of scripts/environment.py --test")

DEMO = Path(__file__).parents[2] / "scripts" / "demo.py"


@pytest.fixture
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_port_that_somebody_listens_on_is_named(demo: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setenv("COSYVOICE_FRONT__PORT", str(port))
        with pytest.raises(demo.DemoError, match=rf"front\.port: .* 127\.0\.0\.1:{port} already"):
            demo.serve("127.0.0.1:1", lambda: None)


def test_front_that_ends_by_itself_is_no_success(demo: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("COSYVOICE_FRONT__PORT", str(taken.getsockname()[1]))
        with pytest.raises(demo.DemoError, match="the front has ended with status"):
            demo.serve("127.0.0.1:1", lambda: None)
