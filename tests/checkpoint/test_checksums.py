"""Files that differ from the list of their checksums are refused wherever they are read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cosyvoice_runtime.checkpoint import Layout, checksums, load_config, load_speakers, verify_checkpoint
from cosyvoice_runtime.checkpoint.__main__ import main
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.checksums import sha256_of
from cosyvoice_runtime.errors import CheckpointError

ROOT = Path(__file__).resolve().parents[2]
DAMAGED = "damaged, or changed on purpose: SHA256SUMS lists another SHA-256"

READERS: dict[str, Callable[[Path], object]] = {
    "cosyvoice2.yaml": load_config,
    "CosyVoice-BlankEN/config.json": load_config,
    "llm.pt": lambda directory: load_tensors(Layout(directory), "llm", load_config(directory)),
    "flow.pt": lambda directory: load_tensors(Layout(directory), "flow", load_config(directory)),
    "hift.pt": lambda directory: load_tensors(Layout(directory), "hift", load_config(directory)),
    "spk2info.pt": lambda directory: load_speakers(Layout(directory)),
    "speech_tokenizer_v2.onnx": lambda directory: Layout(directory).speech_tokenizer,
    "campplus.onnx": lambda directory: Layout(directory).speaker_encoder,
    "CosyVoice-BlankEN/vocab.json": lambda directory: Layout(directory).vocabulary,
    "CosyVoice-BlankEN/merges.txt": lambda directory: Layout(directory).merges,
    "CosyVoice-BlankEN/tokenizer_config.json": lambda directory: Layout(directory).tokenizer_config,
}


def flip_a_bit(path: Path) -> None:
    """In the middle, where a weight is another number then and nothing else is wrong."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", READERS)
def test_flipped_bit_is_noticed_by_whoever_reads_the_file(listed: Path, name: str) -> None:
    READERS[name](listed)
    flip_a_bit(listed / name)
    with pytest.raises(CheckpointError, match=DAMAGED) as caught:
        READERS[name](listed)
    assert str(listed / name) in str(caught.value)


def test_weights_checked_ahead_are_read_once(listed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on, hashed = threading.Event(), threading.Event(), []

    def held(path: Path) -> str:
        hashed.append(path.name)
        begun.set()
        assert goes_on.wait(60)
        return sha256_of(path)

    monkeypatch.setattr(checksums, "sha256_of", held)
    layout = Layout(listed)
    layout.check_ahead("llm", "flow")
    assert begun.wait(60)
    with ThreadPoolExecutor(1) as pool:
        weights = pool.submit(layout.weights, "llm")
        assert not weights.done()  # while it is being read
        goes_on.set()
        assert weights.result(60) == listed / "llm.pt"
    layout.weights("flow")
    assert hashed == ["llm.pt", "flow.pt"]


def test_what_is_found_ahead_is_told_who_asks(listed: Path) -> None:
    flip_a_bit(listed / "llm.pt")
    layout = Layout(listed)
    layout.check_ahead("llm")
    with pytest.raises(CheckpointError, match=DAMAGED):
        layout.weights("llm")


def test_flipped_bit_of_a_weight_is_not_noticed_without_the_list(listed: Path) -> None:
    (listed / "SHA256SUMS").unlink()
    flip_a_bit(listed / "flow.pt")
    READERS["flow.pt"](listed)


def test_every_damaged_and_missing_file_is_listed_at_once(listed: Path) -> None:
    for name in ("flow.pt", "hift.pt"):
        flip_a_bit(listed / name)
    (listed / "spk2info.pt").unlink()
    problems = verify_checkpoint(listed)
    assert [problem for problem in problems if DAMAGED in problem and "flow.pt" in problem]
    assert [problem for problem in problems if DAMAGED in problem and "hift.pt" in problem]
    assert [problem for problem in problems if "spk2info.pt is missing" in problem]
    assert len(problems) == 3


def test_made_checkpoint_lists_all_of_its_files_as_sha256sum_reads_them(listed: Path) -> None:
    found = {path.relative_to(listed).as_posix() for path in listed.rglob("*") if path.is_file()}
    lines = (listed / "SHA256SUMS").read_text().splitlines()
    assert {line.split("  ")[1] for line in lines} == found - {"SHA256SUMS"}
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=listed, check=True)


def test_demo_voice_is_what_its_list_says() -> None:
    lines = (ROOT / "demo_voice" / "SHA256SUMS").read_text().splitlines()
    assert {line.split("  ")[1] for line in lines} == set(Layout(ROOT / "demo_voice").names())
    subprocess.run(
        ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=ROOT / "demo_voice", check=True
    )


@pytest.mark.parametrize("content", [b"no checksum\n", b"\xff\xfe", b"0" * 63 + b"  flow.pt\n"])
def test_damaged_list_is_an_error(listed: Path, content: bytes) -> None:
    (listed / "SHA256SUMS").write_bytes(content)
    with pytest.raises(CheckpointError, match="SHA256SUMS: "):
        load_config(listed)


def test_list_of_names_with_the_directory_before_them_is_read(listed: Path) -> None:
    sums = listed / "SHA256SUMS"
    sums.write_text(sums.read_text().replace("  ", "  ./"))
    READERS["flow.pt"](listed)
    flip_a_bit(listed / "flow.pt")
    with pytest.raises(CheckpointError, match=DAMAGED):
        READERS["flow.pt"](listed)


def test_file_that_the_list_lacks_is_read_and_logged_once(
    listed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sums = listed / "SHA256SUMS"
    sums.write_text("".join(line for line in sums.read_text().splitlines(True) if "hift.pt" not in line))
    for _ in range(2):
        READERS["hift.pt"](listed)
    assert [record.getMessage() for record in caplog.records] == [
        f"{sums} does not list hift.pt, which is read unchecked"
    ]


def test_changes_on_purpose_are_listed_anew(listed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip_a_bit(listed / "flow.pt")
    assert main([str(listed)]) == 1
    assert DAMAGED in capsys.readouterr().err
    assert main(["--write-checksums", str(listed)]) == 0
    READERS["flow.pt"](listed)


def test_file_put_back_is_read_again(listed: Path) -> None:
    path = listed / "hift.pt"
    content, times = path.read_bytes(), path.stat()
    flip_a_bit(path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 1))
    with pytest.raises(CheckpointError):
        READERS["hift.pt"](listed)
    path.write_bytes(content)
    READERS["hift.pt"](listed)


def test_the_remedy_that_the_error_names_works_as_it_is_written(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(tiny_checkpoint, tmp_path / "my weights; 模型"))
    flip_a_bit(directory / "flow.pt")
    with pytest.raises(CheckpointError) as told:
        READERS["flow.pt"](directory)
    command = str(told.value).rpartition("list what is there: ")[2]
    done = subprocess.run(
        command.replace("python", sys.executable, 1), shell=True, cwd=ROOT, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    READERS["flow.pt"](directory)


def test_list_that_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--write-checksums", str(tmp_path / "nowhere")]) == 1
    assert capsys.readouterr().err == (
        f"{tmp_path}/nowhere/SHA256SUMS: No such file or directory: the checksums can't be written\n"
    )
