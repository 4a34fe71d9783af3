"""Where stage 0 takes a checkpoint from."""

from __future__ import annotations

import errno
import http.client
import importlib.util
import os
import runpy
import shutil
import sys
import tempfile
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx2
import huggingface_hub.errors
import pytest

from cosyvoice_runtime.checkpoint import Layout
from cosyvoice_runtime.checkpoint.checksums import read_checksums
from cosyvoice_runtime.checkpoint.family import COSYVOICE2, COSYVOICE3, COSYVOICE_300M, Family
from cosyvoice_runtime.checkpoint.making import make_checkpoint
from cosyvoice_runtime.sha256 import sha256_of

ROOT = Path(__file__).parents[2]
COMMIT = "ace7c47" + 33 * "0"
PARTS_READ = ("llm.pt", "flow.pt", "hift.pt", "campplus.onnx")


@pytest.fixture
def fetching() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fetch_checkpoint", ROOT / "scripts/fetch_checkpoint.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def published_into(out: Path, family: str = "cosyvoice2") -> None:
    """Beside what is there, as downloads do."""
    with tempfile.TemporaryDirectory() as folder:
        made = make_checkpoint(Path(folder) / "made", "tiny", seed=0, family=family)
        (made / "SHA256SUMS").unlink()
        shutil.copytree(made, out, dirs_exist_ok=True)


class Hub:
    """Hugging Face as its client shows it.

    Attributes:
        error: what is raised to whoever asks for a repository.
        download: fills the directory that it is given.
        asked: repository and revision of each question and of each download.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.download: Callable[[Path], None] = published_into
        self.asked: list[tuple[str, str | None]] = []

    def repo_info(self, repository: str, revision: str | None = None) -> Any:
        self.asked.append((repository, revision))
        if self.error:
            raise self.error
        return SimpleNamespace(sha=COMMIT)

    def snapshot_download(
        self, repository: str, revision: str, local_dir: Path, ignore_patterns: list[str]
    ) -> None:
        assert ignore_patterns
        self.asked.append((repository, revision))
        self.download(local_dir)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub()
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: hub)
    monkeypatch.setattr("huggingface_hub.snapshot_download", hub.snapshot_download)
    return hub


@pytest.fixture
def unreachable(hub: Hub) -> Hub:
    hub.error = httpx2.ConnectError("Name or service not known")
    return hub


def breaking_off(error: Exception, *names: str) -> Callable[[Path], None]:
    """A download of a few files that ends with an error."""

    def download(out: Path) -> None:
        for name in names:
            (out / name).write_bytes(b"half of all")
        raise error

    return download


@pytest.mark.parametrize("there", [False, True], ids=["nothing there", "an empty directory there"])
def test_without_a_network_the_demo_voice_is_used_in_place(
    fetching: ModuleType, tmp_path: Path, unreachable: Hub, capsys: pytest.CaptureFixture[str], there: bool
) -> None:
    out = tmp_path / "checkpoints" / "published"
    if there:
        out.mkdir(parents=True)
    fetching.fetch(out, "auto")
    assert out.resolve() == ROOT / "demo_voice"
    told = capsys.readouterr().err
    assert told.startswith("WARNING: Hugging Face can't be reached (ConnectError: Name or service not known)")
    assert "is the demo voice and not the published checkpoint" in told


def test_what_is_there_is_never_given_up_for_the_demo_voice(
    fetching: ModuleType, tmp_path: Path, unreachable: Hub
) -> None:
    out = tmp_path / "mine"
    out.mkdir()
    (out / "notes.txt").write_text("of years")
    with pytest.raises(fetching.FetchError, match=r"can't be reached \(ConnectError: Name or service"):
        fetching.fetch(out, "auto")
    assert (out / "notes.txt").read_text() == "of years"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "flow.pt"), "No space left on device: 'flow.pt'"),
        (httpx2.ReadError("connection reset"), "ReadError: connection reset"),
        (huggingface_hub.errors.XetDownloadError("no more"), "XetDownloadError: no more"),
    ],
    ids=["full disk", "connection", "transfer"],
)
def test_a_download_that_breaks_off_is_kept_and_says_why_and_goes_on(
    fetching: ModuleType,
    tmp_path: Path,
    hub: Hub,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    said: str,
) -> None:
    """With the source auto, and although the file by which a family is told has come."""
    out, whole = tmp_path / "checkpoint", hub.download
    hub.download = breaking_off(error, "cosyvoice2.yaml", "llm.pt")
    assert fetching.main([str(out)]) == 1
    told = capsys.readouterr().err
    assert "FunAudioLLM/CosyVoice2-0.5B: the download has broken off" in told
    assert said in told
    assert not out.is_symlink()
    assert (out / "llm.pt").read_bytes() == b"half of all"
    for other in ("made", str(ROOT / "demo_voice")):
        with pytest.raises(fetching.FetchError, match="an unfinished download is there: finish it"):
            fetching.fetch(out, other)
    with pytest.raises(fetching.FetchError, match="unfinished download of cosyvoice2 is there"):
        fetching.fetch(out, "auto", COSYVOICE3)
    hub.download = whole
    fetching.fetch(out, "auto")
    assert capsys.readouterr().out.endswith(f"{out}: complete\n")
    asked = len(hub.asked)
    fetching.fetch(out, "auto")
    assert len(hub.asked) == asked, "what is complete is asked of no hub"


def test_a_download_without_all_that_is_needed_is_not_finished(
    fetching: ModuleType, tmp_path: Path, hub: Hub
) -> None:
    whole = hub.download

    def without_flow(out: Path) -> None:
        whole(out)
        (out / "flow.pt").unlink()

    hub.download = without_flow
    for _ in range(2):
        with pytest.raises(fetching.FetchError, match=r"flow\.safetensors or flow\.pt did not come"):
            fetching.fetch(tmp_path / "checkpoint", "huggingface")
    assert not (tmp_path / "checkpoint" / "SHA256SUMS").exists()


def test_somebody_s_incomplete_directory_is_not_written_to(
    fetching: ModuleType, tiny_checkpoint: Path, tmp_path: Path, hub: Hub
) -> None:
    own = shutil.copytree(tiny_checkpoint, tmp_path / "own")
    (own / "campplus.onnx").unlink()
    for source in ("auto", "huggingface"):
        with pytest.raises(fetching.FetchError, match=r"own is incomplete: campplus\.onnx missing"):
            fetching.fetch(own, source)
    assert not hub.asked


@pytest.mark.parametrize("source", ["huggingface", "modelscope"])
def test_the_published_checkpoint_takes_the_demo_voice_s_place_when_its_hub_is_named(
    fetching: ModuleType,
    tmp_path: Path,
    unreachable: Hub,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    source: str,
) -> None:
    out = tmp_path / "checkpoint"
    fetching.fetch(out, "auto")
    unreachable.error = None
    capsys.readouterr()
    fetching.fetch(out, "auto")
    assert "--source huggingface (SOURCE=huggingface ./run.sh 0) puts" in capsys.readouterr().out
    assert out.is_symlink()
    modelscope = ModuleType("modelscope")
    modelscope.snapshot_download = (  # type: ignore[attr-defined]
        lambda _repository, local_dir, **_: published_into(Path(local_dir))
    )
    monkeypatch.setitem(sys.modules, "modelscope", modelscope)
    fetching.fetch(out, source)
    assert not out.is_symlink()
    assert (ROOT / "demo_voice" / "llm.pt").exists()


def test_the_demo_voice_stays_while_its_hub_is_not_reached(
    fetching: ModuleType, tmp_path: Path, unreachable: Hub
) -> None:
    fetching.fetch(tmp_path / "checkpoint", "auto")
    with pytest.raises(fetching.FetchError, match="can't be reached"):
        fetching.fetch(tmp_path / "checkpoint", "huggingface")
    assert (tmp_path / "checkpoint").resolve() == ROOT / "demo_voice"


def test_the_demo_voice_of_one_s_own_choice_is_nothing_to_speak_of(
    fetching: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        fetching.fetch(tmp_path / "checkpoint", str(ROOT / "demo_voice"))
    assert capsys.readouterr().out.endswith("a checkpoint is there, nothing to do\n")


def test_a_link_that_leads_nowhere_is_left_alone_and_told(fetching: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "checkpoint"
    os.symlink(tmp_path / "gone", out)
    with pytest.raises(fetching.FetchError, match=r"checkpoint can't become a link to .*: File exists"):
        fetching.fetch(out, str(ROOT / "demo_voice"))


def test_a_hub_that_refuses_is_no_missing_network(fetching: ModuleType, tmp_path: Path, hub: Hub) -> None:
    answer = httpx2.Response(403, request=httpx2.Request("GET", "https://hub/api"))
    hub.error = huggingface_hub.errors.HfHubHTTPError("403 Forbidden", response=answer)
    with pytest.raises(fetching.FetchError, match=r"Hugging Face refuses FunAudioLLM/.* 403 Forbidden"):
        fetching.fetch(tmp_path / "checkpoint", "auto")
    assert not (tmp_path / "checkpoint").exists()


def test_another_family_or_a_revision_has_no_demo_voice(
    fetching: ModuleType, tmp_path: Path, unreachable: Hub
) -> None:
    for family, revision in ((COSYVOICE3, None), (COSYVOICE2, "v1")):
        with pytest.raises(fetching.FetchError, match=r"Hugging Face can't be reached \(ConnectError"):
            fetching.fetch(tmp_path / "checkpoint", "auto", family, revision)
    assert not (tmp_path / "checkpoint").exists()


def test_revision_is_asked_for_and_the_commit_that_came_is_told(
    fetching: ModuleType, tmp_path: Path, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetching.main([str(tmp_path / "checkpoint"), "--source", "huggingface", "--revision", "v1"]) == 0
    name = "FunAudioLLM/CosyVoice2-0.5B"
    assert hub.asked == [(name, "v1"), (name, COMMIT)]
    assert f"{name} at commit {COMMIT}" in capsys.readouterr().out
    with pytest.raises(fetching.FetchError, match="revision: 'v1' is not accepted with the source made"):
        fetching.fetch(tmp_path / "made", "made", COSYVOICE2, "v1")


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
    hub: Hub,
    source: str,
    family: Family,
    repositories: set[str],
) -> None:
    """What is not read may be missing; what is read is listed with its checksum and held to it."""

    def download(
        repository: str,
        revision: str | None,
        local_dir: Path | str,
        ignore_patterns: Any = (),
        ignore_file_pattern: Any = (),
    ) -> None:
        assert repository in repositories
        assert revision == {"huggingface": COMMIT, "modelscope": None}[source]
        out = Path(local_dir)
        published_into(out, family.name)
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
def published_without_vocabulary(hub: Hub) -> None:
    def download(out: Path) -> None:
        published_into(out, "cosyvoice300m")
        (out / COSYVOICE_300M.vocabulary).unlink()

    hub.download = download


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


def test_vocabulary_that_breaks_off_is_told(
    fetching: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    published_without_vocabulary: None,
) -> None:
    class Answer:
        def __enter__(self) -> Answer:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def read(self) -> bytes:
            raise http.client.IncompleteRead(b"half")

    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: Answer())
    with pytest.raises(fetching.FetchError, match=r"IncompleteRead.*: put this file there"):
        fetching.fetch(tmp_path / "fetched", "huggingface", COSYVOICE_300M)


def test_a_source_that_is_none_is_named(fetching: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(fetching.FetchError, match="nowhere is neither a directory nor one of auto,"):
        fetching.fetch(tmp_path / "checkpoint", "nowhere")


def test_download_is_held_to_the_checksums_of_its_publisher(
    fetching: ModuleType, tiny_checkpoint: Path, tmp_path: Path, hub: Hub
) -> None:
    """Hugging Face's client notes commit, etag and time; the etag of a large file is its SHA-256."""

    def download(local_dir: Path) -> None:
        listed = shutil.ignore_patterns("SHA256SUMS")
        shutil.copytree(tiny_checkpoint, local_dir, ignore=listed, dirs_exist_ok=True)
        notes = local_dir / ".cache" / "huggingface" / "download"
        (notes / "CosyVoice-BlankEN").mkdir(parents=True)
        for name, etag in {
            "flow.pt": sha256_of(local_dir / "flow.pt"),
            "hift.pt": "0" * 64,
            "CosyVoice-BlankEN/vocab.json": "0" * 40,
        }.items():
            (notes / f"{name}.metadata").write_text(f"ace7c47\n{etag}\n1763797000.0\n")

    hub.download = download
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
