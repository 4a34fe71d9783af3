"""Where stage 0 takes a checkpoint from."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from cosyvoice_runtime.checkpoint import make_checkpoint
from cosyvoice_runtime.sha256 import sha256_of

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


def test_download_is_held_to_the_checksums_of_its_publisher(
    fetching: ModuleType, tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hugging Face's client notes commit, etag and time; the etag of a large file is its SHA-256."""

    def download(repository: str, local_dir: Path, ignore_patterns: list[str]) -> None:
        shutil.copytree(tiny_checkpoint, local_dir, ignore=shutil.ignore_patterns("SHA256SUMS"))
        notes = local_dir / ".cache" / "huggingface" / "download"
        (notes / "CosyVoice-BlankEN").mkdir(parents=True)
        for name, etag in {
            "flow.pt": sha256_of(local_dir / "flow.pt"),
            "hift.pt": "0" * 64,
            "CosyVoice-BlankEN/vocab.json": "0" * 40,
        }.items():
            (notes / f"{name}.metadata").write_text(f"ace7c47\n{etag}\n1763797000.0\n")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    out = tmp_path / "checkpoint"
    for _ in range(2):  # and it is not taken for complete the next time
        with pytest.raises(fetching.FetchError, match=r"hift.pt: damaged") as caught:
            fetching.fetch(out, "huggingface")
        assert str(caught.value).count("damaged") == 1


def test_checkpoint_of_one_s_own_is_not_written_to(
    fetching: ModuleType, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    own = shutil.copytree(tiny_checkpoint, tmp_path / "own", ignore=shutil.ignore_patterns("SHA256SUMS"))
    fetching.fetch(tmp_path / "checkpoint", str(own))
    assert not (own / "SHA256SUMS").exists()


def test_checkpoint_of_another_family_is_left_alone(
    fetching: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = make_checkpoint(tmp_path / "checkpoint", "tiny", seed=0, family="cosyvoice3")
    fetching.fetch(checkpoint, "auto")
    assert capsys.readouterr().out == f"{checkpoint}: a checkpoint is there, nothing to do\n"
