"""What scripts/demo.py says when its front can't serve."""

from __future__ import annotations

import importlib.util
import socket
import sys
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


def test_port_that_somebody_listens_on_is_told_before_anything_is_made(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setenv("COSYVOICE_FRONT__PORT", str(port))
        monkeypatch.setattr(demo.signal, "signal", lambda *_: None)
        monkeypatch.setattr(demo, "make_repository", None)
        monkeypatch.setattr(sys, "argv", ["demo.py", "--serve"])
        assert demo.main() == 1
    told = capsys.readouterr().err
    assert f"something else listens on 127.0.0.1:{port} already" in told
    assert "COSYVOICE_FRONT__PORT=" in told


def test_front_that_ends_by_itself_is_no_success(demo: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("COSYVOICE_FRONT__PORT", str(taken.getsockname()[1]))
        with pytest.raises(demo.DemoError, match="the front has ended with status"):
            demo.serve("127.0.0.1:1", lambda: None)
