"""Where stage 0 takes a checkpoint from."""

from __future__ import annotations

import importlib.util
import runpy
import shutil
import sys
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cosyvoice_runtime.checkpoint import Layout
from cosyvoice_runtime.checkpoint.checksums import read_checksums
from cosyvoice_runtime.checkpoint.family import COSYVOICE2, COSYVOICE3, COSYVOICE_300M, Family
from cosyvoice_runtime.checkpoint.making import make_checkpoint
from cosyvoice_runtime.sha256 import sha256_of

ROOT = Path(__file__).parents[2]
PARTS_READ = ("llm.pt", "flow.pt", "hift.pt", "campplus.onnx")


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
    def unreachable(out: Path, family: Family) -> None:
        out.mkdir(parents=True)
        raise fetching.FetchError("Hugging Face can't be reached")

    monkeypatch.setattr(fetching, "from_hugging_face", unreachable)
    fetching.fetch(tmp_path / "checkpoints" / "published", "auto")
    assert (tmp_path / "checkpoints" / "published").resolve() == ROOT / "demo_voice"
    assert "can't be reached: using" in capsys.readouterr().out


def test_another_family_has_no_demo_voice(
    fetching: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(repository: str, **_: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(fetching.FetchError, match=r"Hugging Face can't be reached \(OSError\)"):
        fetching.fetch(tmp_path / "checkpoint", "auto", COSYVOICE3)
    assert not (tmp_path / "checkpoint").exists()


def test_family_of_a_made_checkpoint_is_chosen_and_its_instruction_told(
    fetching: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "checkpoint"
    assert fetching.main([str(out), "--source", "made", "--family", "cosyvoice3"]) == 0
    assert Layout(out).family is COSYVOICE3
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["usual_instruction.py", str(out)])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(ROOT / "scripts/usual_instruction.py"), run_name="__main__")
    assert capsys.readouterr().out == COSYVOICE3.usual_instruction + "\n"


@pytest.mark.parametrize("source", ["huggingface", "modelscope"])
@pytest.mark.parametrize(
    ("family", "repositories"),
    [
        (COSYVOICE2, {"FunAudioLLM/CosyVoice2-0.5B", "iic/CosyVoice2-0.5B"}),
        (COSYVOICE3, {"FunAudioLLM/Fun-CosyVoice3-0.5B-2512"}),
        (COSYVOICE_300M, {"FunAudioLLM/CosyVoice-300M", "iic/CosyVoice-300M"}),
    ],
    ids=["cosyvoice2", "cosyvoice3", "cosyvoice300m"],
)
def test_published_checkpoint_is_fetched_without_what_is_not_read_and_checked(
    fetching: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    family: Family,
    repositories: set[str],
) -> None:
    """What is not read may be missing; what is read is listed with its checksum and held to it."""

    def download(
        repository: str, local_dir: Path | str, ignore_patterns: Any = (), ignore_file_pattern: Any = ()
    ) -> None:
        assert repository in repositories
        make_checkpoint(local_dir, "tiny", seed=0, family=family.name)
        out = Path(local_dir)
        (out / "SHA256SUMS").unlink()
        published = [path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()]
        published += ["flow.decoder.estimator.fp32.onnx", "llm.rl.pt", "asset/dingding.png"]
        ignored = [*ignore_patterns, *ignore_file_pattern]
        fetched = [name for name in published if not any(fnmatch(name, each) for each in ignored)]
        assert set(published) - set(fetched) == set(published[-3:])

    modelscope = ModuleType("modelscope")
    modelscope.snapshot_download = download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "modelscope", modelscope)
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    out = tmp_path / "checkpoint"
    fetching.fetch(out, source, family)
    read = {*PARTS_READ, family.config_file, family.speech_tokenizer, family.vocabulary}
    assert read <= set(read_checksums(out))
    (out / "hift.pt").write_bytes(b"half a file")
    with pytest.raises(fetching.FetchError, match=r"hift\.pt: damaged"):
        fetching.fetch(out, source, family)


@pytest.fixture
def published_without_vocabulary(fetching: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(_repository: str, local_dir: Path, **_: object) -> None:
        make_checkpoint(local_dir, "tiny", seed=0, family="cosyvoice300m")
        for name in ("SHA256SUMS", COSYVOICE_300M.vocabulary):
            (Path(local_dir) / name).unlink()

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)


def test_vocabulary_that_a_family_is_published_without_is_fetched_too(
    fetching: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    published_without_vocabulary: None,
) -> None:
    whole = make_checkpoint(tmp_path / "made", "tiny", seed=0, family="cosyvoice300m")
    vocabulary = whole / COSYVOICE_300M.vocabulary
    there = fetching.PublishedFile(vocabulary.as_uri(), sha256_of(vocabulary))
    monkeypatch.setitem(fetching.VOCABULARIES, COSYVOICE_300M, there)
    fetching.fetch(tmp_path / "fetched", "huggingface", COSYVOICE_300M)
    assert (tmp_path / "fetched" / COSYVOICE_300M.vocabulary).read_bytes() == vocabulary.read_bytes()
    assert read_checksums(tmp_path / "fetched")[COSYVOICE_300M.vocabulary] == sha256_of(vocabulary)


@pytest.mark.parametrize("exists", [True, False])
def test_vocabulary_that_cannot_be_had_or_is_another_is_told(
    fetching: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    published_without_vocabulary: None,
    exists: bool,
) -> None:
    other = tmp_path / "other"
    if exists:
        other.write_bytes(b"another file")
    there = fetching.PublishedFile(other.as_uri(), "0" * 64)
    monkeypatch.setitem(fetching.VOCABULARIES, COSYVOICE_300M, there)
    said = "is another file" if exists else "put this file there"
    with pytest.raises(fetching.FetchError, match=rf"multilingual\.tiktoken: file://.* {said}"):
        fetching.fetch(tmp_path / "fetched", "huggingface", COSYVOICE_300M)
    assert not (tmp_path / "fetched" / COSYVOICE_300M.vocabulary).exists()


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
