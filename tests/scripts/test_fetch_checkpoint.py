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
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import huggingface_hub.errors
import pytest
from huggingface_hub.hf_api import ModelInfo

from cosyvoice_runtime.checkpoint import Layout
from cosyvoice_runtime.checkpoint.checksums import read_checksums, sha256_of
from cosyvoice_runtime.checkpoint.layout import QWEN2_FILES
from cosyvoice_runtime.families import COSYVOICE2, COSYVOICE3, COSYVOICE_300M, FAMILIES, Family
from cosyvoice_runtime.families.family import PublishedFile
from making import make_checkpoint

ROOT = Path(__file__).parents[2]
COMMIT = "ace7c47" + 33 * "0"


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


def read_of(family: Family) -> list[str]:
    """Files of a published checkpoint that are read."""
    qwen2 = [f"CosyVoice-BlankEN/{name}" for name in QWEN2_FILES if family.has_qwen2]
    return [
        family.config_file, "llm.pt", "flow.pt", "hift.pt", family.speech_tokenizer, "campplus.onnx",
        *([family.vocabulary] if family.has_qwen2 else []), *qwen2,
    ]  # fmt: skip


UNREAD = (
    "README.md", "config.json", "asset/dingding.png", "flow.decoder.estimator.fp32.onnx", "llm.rl.pt",
    "speech_tokenizer_v3.batch.onnx", "CosyVoice-BlankEN/model.safetensors",
    "CosyVoice-BlankEN/generation_config.json", "llm.text_encoder.fp16.zip",
)  # fmt: skip


class Hub:
    """Hugging Face as its client shows it.

    Attributes:
        error: what is raised to whoever asks for a repository.
        download: fills the directory that it is given.
        files: name, size and SHA-256 of what the repository has.
        licence: as the card says it; None: there is no card.
        asked: repository and revision of each question and of each download.
        fetched: names that the last download was for.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.download: Callable[[Path], None] = published_into
        names = {*UNREAD, *(name for family in FAMILIES for name in read_of(family))}
        self.files: dict[str, tuple[int, str | None]] = dict.fromkeys(names, (1000, None))
        self.licence: str | None = "apache-2.0"
        self.asked: list[tuple[str, str | None]] = []
        self.fetched: list[str] = []

    def repo_info(self, repository: str, revision: str | None, files_metadata: bool) -> Any:
        assert files_metadata
        self.asked.append((repository, revision))
        if self.error:
            raise self.error
        return ModelInfo(
            id=repository,
            sha=COMMIT,
            card_data=self.licence and {"license": self.licence},
            siblings=[
                {
                    "rfilename": name,
                    "size": size,
                    "lfs": sum_ and {"size": size, "sha256": sum_, "pointerSize": 1},
                }
                for name, (size, sum_) in self.files.items()
            ],
        )

    def snapshot_download(
        self, repository: str, revision: str, local_dir: Path, allow_patterns: list[str]
    ) -> None:
        self.asked.append((repository, revision))
        self.fetched = allow_patterns
        self.download(local_dir)


class ModelScope:
    """The other hub, by both modules of its client that are used."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub

    def get_model_files(self, repository: str, revision: str | None, recursive: bool) -> list[dict[str, Any]]:
        assert recursive
        self.hub.asked.append((repository, revision))
        if self.hub.error:
            raise self.hub.error
        return [{"Path": name, "Size": size, "Sha256": sum_} for name, (size, sum_) in self.hub.files.items()]

    def snapshot_download(
        self, repository: str, revision: str | None, local_dir: str, allow_file_pattern: list[str]
    ) -> None:
        self.hub.snapshot_download(repository, str(revision), Path(local_dir), allow_file_pattern)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub()
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
    assert f"{name} at {COMMIT}, which --revision {COMMIT} fetches again" in capsys.readouterr().out
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
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_what_is_read_is_fetched_and_nothing_else_and_each_file_told(
    fetching: ModuleType,
    tmp_path: Path,
    hub: Hub,
    capsys: pytest.CaptureFixture[str],
    source: str,
    family: Family,
) -> None:
    """What is fetched is listed with its checksum and held to it."""
    hub.download = lambda out: published_into(out, family.name)
    hub.files["llm.pt"] = (2_023_316_821, None)
    out = tmp_path / "checkpoint"
    fetching.fetch(out, source, family)
    assert sorted(hub.fetched) == sorted(read_of(family))
    published = family.published
    repository = published.hugging_face if source == "huggingface" else published.model_scope
    assert {name for name, _ in hub.asked} == {repository}
    told = capsys.readouterr().out
    revision = COMMIT if source == "huggingface" else "its newest revision"
    licence = "apache-2.0" if source == "huggingface" else "Apache-2.0"
    assert f"{repository} at {revision}, licence {licence}: 2.02 GB of 2.02 GB are read and fetched" in told
    assert "\n   2.02 GB  llm.pt\n" in told
    assert all(f"  {name}\n" in told for name in read_of(family))
    assert {*read_of(family), family.vocabulary} <= set(read_checksums(out))
    (out / "hift.pt").write_bytes(b"half a file")
    with pytest.raises(fetching.FetchError, match=r"hift\.pt: damaged"):
        fetching.fetch(out, source, family)


def test_speakers_and_safetensors_are_fetched_where_a_hub_has_them(
    fetching: ModuleType, tmp_path: Path, hub: Hub
) -> None:
    """Of a network in two formats, the one that is read."""
    hub.files |= {"spk2info.pt": (10, None), "llm.safetensors": (10, None)}
    fetching.fetch(tmp_path / "checkpoint", "huggingface")
    assert {"spk2info.pt", "llm.safetensors"} <= set(hub.fetched)
    assert "llm.pt" not in hub.fetched


def test_licence_is_the_publisher_s_where_the_hub_tells_none(
    fetching: ModuleType, tmp_path: Path, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.licence = None
    fetching.fetch(tmp_path / "checkpoint", "huggingface")
    assert "licence Apache-2.0:" in capsys.readouterr().out


@pytest.mark.parametrize("source", ["huggingface", "modelscope"])
def test_files_that_a_hub_lacks_are_told_before_anything_is_fetched(
    fetching: ModuleType, tmp_path: Path, hub: Hub, source: str
) -> None:
    del hub.files["flow.pt"], hub.files["campplus.onnx"]
    told = r"lacks flow\.safetensors or flow\.pt, campplus\.onnx$"
    with pytest.raises(fetching.FetchError, match=told):
        fetching.fetch(tmp_path / "checkpoint", source)
    assert not hub.fetched
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("source", ["huggingface", "modelscope"])
def test_a_disk_without_room_is_told_before_anything_is_fetched(
    fetching: ModuleType, tmp_path: Path, hub: Hub, source: str
) -> None:
    hub.files["llm.pt"] = (10**18, None)
    with pytest.raises(fetching.FetchError, match=r"1000000000\.10 GB are still to come, and .* GB free"):
        fetching.fetch(tmp_path / "deep" / "checkpoint", source)
    assert not hub.fetched
    assert not (tmp_path / "deep").exists()


def test_what_has_come_needs_no_room_again(fetching: ModuleType, tmp_path: Path, hub: Hub) -> None:
    out, whole = tmp_path / "checkpoint", hub.download
    hub.download = breaking_off(OSError(errno.ENOSPC, "No space left on device"), "cosyvoice2.yaml")
    with pytest.raises(fetching.FetchError, match="broken off"):
        fetching.fetch(out, "huggingface")
    hub.files["llm.pt"] = (8 * 2**40, None)
    parts = out / ".cache" / "huggingface" / "download"
    parts.mkdir(parents=True)
    with (parts / "llm.pt.incomplete").open("wb") as file:
        file.truncate(8 * 2**40)  # sparse
    hub.download = whole
    fetching.fetch(out, "huggingface")


def test_modelscope_that_gives_no_answer_is_told(
    fetching: ModuleType, tmp_path: Path, unreachable: Hub
) -> None:
    with pytest.raises(
        fetching.FetchError, match=r"ModelScope does not tell of iic/CosyVoice2-0\.5B \(ConnectError"
    ):
        fetching.fetch(tmp_path / "checkpoint", "modelscope")
    assert not (tmp_path / "checkpoint").exists()


def test_files_of_one_s_own_beside_those_that_are_read_are_left(
    fetching: ModuleType, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    """A directory of one's own is linked to, not copied."""
    own = Path(shutil.copytree(tiny_checkpoint, tmp_path / "own"))
    (own / "llm.rl.pt").write_bytes(b"of one's own")
    fetching.fetch(tmp_path / "checkpoint", str(own))
    assert (tmp_path / "checkpoint").resolve() == own
    assert (own / "llm.rl.pt").read_bytes() == b"of one's own"


@pytest.fixture
def published_without_vocabulary(hub: Hub) -> None:
    def download(out: Path) -> None:
        published_into(out, "cosyvoice300m")
        (out / COSYVOICE_300M.vocabulary).unlink()

    hub.download = download


def test_vocabulary_that_a_family_is_published_without_is_fetched_too(
    fetching: ModuleType,
    tmp_path: Path,
    published_without_vocabulary: None,
) -> None:
    whole = make_checkpoint(tmp_path / "made", "tiny", seed=0, family="cosyvoice300m")
    vocabulary = whole / COSYVOICE_300M.vocabulary
    there = PublishedFile(vocabulary.as_uri(), sha256_of(vocabulary))
    family = replace(COSYVOICE_300M, vocabulary_source=there)
    fetching.fetch(tmp_path / "fetched", "huggingface", family)
    assert (tmp_path / "fetched" / COSYVOICE_300M.vocabulary).read_bytes() == vocabulary.read_bytes()
    assert read_checksums(tmp_path / "fetched")[COSYVOICE_300M.vocabulary] == sha256_of(vocabulary)


@pytest.mark.parametrize("exists", [True, False])
def test_vocabulary_that_cannot_be_had_or_is_another_is_told(
    fetching: ModuleType,
    tmp_path: Path,
    published_without_vocabulary: None,
    exists: bool,
) -> None:
    other = tmp_path / "other"
    if exists:
        other.write_bytes(b"another file")
    there = PublishedFile(other.as_uri(), "0" * 64)
    family = replace(COSYVOICE_300M, vocabulary_source=there)
    said = "is another file" if exists else "put this file there"
    with pytest.raises(fetching.FetchError, match=rf"multilingual\.tiktoken: file://.* {said}"):
        fetching.fetch(tmp_path / "fetched", "huggingface", family)
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
    """The hub tells the SHA-256 of large files."""

    def download(local_dir: Path) -> None:
        listed = shutil.ignore_patterns("SHA256SUMS")
        shutil.copytree(tiny_checkpoint, local_dir, ignore=listed, dirs_exist_ok=True)

    hub.download = download
    hub.files |= {"flow.pt": (1000, sha256_of(tiny_checkpoint / "flow.pt")), "hift.pt": (1000, "0" * 64)}
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
