"""Where stage 0 takes a checkpoint from."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def fetching() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fetch_checkpoint", ROOT / "scripts/fetch_checkpoint.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_a_network_the_demo_voice_is_used_in_place(
    fetching: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreachable(out: Path) -> None:
        out.mkdir(parents=True)
        raise fetching.FetchError("Hugging Face can't be reached")

    monkeypatch.setattr(fetching, "from_hugging_face", unreachable)
    fetching.fetch(tmp_path / "checkpoints" / "published", "auto")
    assert (tmp_path / "checkpoints" / "published").resolve() == ROOT / "demo_voice"
    assert "can't be reached: using" in capsys.readouterr().out


def test_a_source_that_is_none_is_named(fetching: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(fetching.FetchError, match="nowhere is neither a directory nor one of auto,"):
        fetching.fetch(tmp_path / "checkpoint", "nowhere")
