"""Which files of a hub are fetched, what is told of them, and what they are held to."""

from __future__ import annotations

import errno
import http.client
import shutil
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from cosyvoice_runtime.checkpoint.checksums import read_checksums, sha256_of
from cosyvoice_runtime.families import COSYVOICE2, COSYVOICE_300M, FAMILIES, Family
from cosyvoice_runtime.families.family import PublishedFile
from fake_hub import COMMIT, Hub, breaking_off, read_of
from making import make_checkpoint


def test_revision_is_asked_for_and_the_commit_that_came_is_told(
    fetching: ModuleType, tmp_path: Path, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetching.main([str(tmp_path / "checkpoint"), "--source", "huggingface", "--revision", "v1"]) == 0
    name = "FunAudioLLM/CosyVoice2-0.5B"
    assert hub.asked == [(name, "v1"), (name, COMMIT)]
    assert f"{name} at {COMMIT}, which --revision {COMMIT} fetches again" in capsys.readouterr().out
    with pytest.raises(fetching.FetchError, match="revision: 'v1' is not accepted with the source made"):
        fetching.fetch(tmp_path / "made", "made", COSYVOICE2, "v1")


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
    hub.download = lambda out: hub.publish(out, family.name)
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


@pytest.fixture
def published_without_vocabulary(hub: Hub) -> None:
    def download(out: Path) -> None:
        hub.publish(out, "cosyvoice300m")
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
