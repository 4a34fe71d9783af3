from __future__ import annotations

import re
from pathlib import Path

import pytest

from cosyvoice_runtime.checkpoint.layout import PARTS, Layout, Part
from cosyvoice_runtime.errors import CheckpointError


@pytest.mark.parametrize("part", PARTS)
def test_safetensors_twin_is_preferred(tmp_path: Path, part: Part) -> None:
    for suffix in ("pt", "safetensors"):
        (tmp_path / f"{part}.{suffix}").touch()
    assert Layout(tmp_path).weights(part) == tmp_path / f"{part}.safetensors"


@pytest.mark.parametrize("part", PARTS)
def test_pt_is_found_alone(tmp_path: Path, part: Part) -> None:
    (tmp_path / f"{part}.pt").touch()
    assert Layout(tmp_path).weights(part) == tmp_path / f"{part}.pt"


def test_missing_weights_name_both_files_and_directory(tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match=f"llm.safetensors or llm.pt is missing .* {re.escape(str(tmp_path))}"
    ):
        Layout(tmp_path).weights("llm")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("config", "cosyvoice2.yaml"),
        ("speech_tokenizer", "speech_tokenizer_v2.onnx"),
        ("speaker_encoder", "campplus.onnx"),
        ("qwen2_config", "CosyVoice-BlankEN/config.json"),
        ("vocabulary", "CosyVoice-BlankEN/vocab.json"),
        ("merges", "CosyVoice-BlankEN/merges.txt"),
        ("tokenizer_config", "CosyVoice-BlankEN/tokenizer_config.json"),
    ],
)
def test_missing_file_is_named_with_its_directory(tmp_path: Path, name: str, file: str) -> None:
    with pytest.raises(
        CheckpointError, match=re.escape(f"{file} is missing in checkpoint directory {tmp_path}")
    ):
        getattr(Layout(tmp_path), name)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    assert getattr(Layout(tmp_path), name) == tmp_path / file


def test_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=re.escape(f"{tmp_path / 'nowhere'} does not exist")):
        Layout(tmp_path / "nowhere").weights("flow")


def test_what_a_checkpoint_of_its_family_lacks_is_told(tmp_path: Path) -> None:
    (tmp_path / "cosyvoice.yaml").touch()
    (tmp_path / "flow.safetensors").touch()
    (tmp_path / "SHA256SUMS").write_text(f"{64 * '0'}  flow.safetensors\n{64 * '0'}  spk2info.pt\n")
    assert Layout(tmp_path).missing() == [
        "llm.safetensors or llm.pt",
        "hift.safetensors or hift.pt",
        "speech_tokenizer_v1.onnx",
        "campplus.onnx",
        "multilingual.tiktoken",
        "spk2info.pt",
    ]


def test_a_whole_checkpoint_lacks_nothing(tiny_checkpoint: Path) -> None:
    assert Layout(tiny_checkpoint).missing() == []


def test_registered_speakers_are_optional(tmp_path: Path) -> None:
    assert Layout(tmp_path).speakers is None
    (tmp_path / "spk2info.pt").touch()
    assert Layout(tmp_path).speakers == tmp_path / "spk2info.pt"


def test_of_two_formats_of_weights_the_one_that_is_read_is_told_once(
    checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (checkpoint / "flow.safetensors").write_bytes(b"")
    for _ in range(2):
        assert Layout(checkpoint).weights("flow") == checkpoint / "flow.safetensors"
    assert [record.getMessage() for record in caplog.records] == [
        f"{checkpoint} has flow.safetensors and flow.pt: the first is read"
    ]


def test_a_directory_in_a_file_s_place_is_told(checkpoint: Path) -> None:
    """DeepSpeed writes a directory where its user named a file."""
    (checkpoint / "llm.pt").unlink()
    (checkpoint / "llm.pt").mkdir()
    with pytest.raises(CheckpointError, match=r"llm\.pt is a directory; a file is read under this name"):
        Layout(checkpoint).weights("llm")
