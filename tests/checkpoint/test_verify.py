from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from cosyvoice_runtime.checkpoint import verify_checkpoint
from cosyvoice_runtime.checkpoint.__main__ import main
from cosyvoice_runtime.checkpoint.tensors import TEXT_HEAD


def change(path: Path, **tensors: torch.Tensor | None) -> None:
    content = torch.load(path, weights_only=True) | tensors
    torch.save({name: tensor for name, tensor in content.items() if tensor is not None}, path)


def test_everything_wrong_is_listed_at_once(checkpoint: Path) -> None:
    change(checkpoint / "flow.pt", **{"encoder_proj.bias": None, "stranger": torch.zeros(1)})
    change(checkpoint / "hift.pt", **{"conv_post.bias": torch.full((18,), math.nan)})
    change(checkpoint / "llm.pt", **{TEXT_HEAD: torch.zeros(1024, 64)})
    (checkpoint / "campplus.onnx").write_bytes(b"nothing")
    (checkpoint / "speech_tokenizer_v2.onnx").unlink()
    (checkpoint / "CosyVoice-BlankEN" / "merges.txt").write_text("")
    torch.save({"alice": {"embedding": torch.tensor(math.inf)}}, checkpoint / "spk2info.pt")
    problems = "\n".join(verify_checkpoint(checkpoint))
    for expected in (
        "merges.txt: is empty",
        "flow.pt: tensor encoder_proj.bias is missing",
        "flow.pt: tensor stranger is unknown",
        "hift.pt: tensor conv_post.bias holds NaN or infinity",
        f"llm.pt: tensor {TEXT_HEAD} differs from",
        "campplus.onnx: not readable as ONNX",
        "speech_tokenizer_v2.onnx is missing",
        "spk2info.pt: speaker alice: tensor embedding holds NaN or infinity",
    ):
        assert expected in problems
    assert len(problems.splitlines()) == 8


def test_swapped_onnx_files_are_noticed(checkpoint: Path) -> None:
    speech, speaker = checkpoint / "speech_tokenizer_v2.onnx", checkpoint / "campplus.onnx"
    content = speech.read_bytes()
    speech.write_bytes(speaker.read_bytes())
    speaker.write_bytes(content)
    assert verify_checkpoint(checkpoint) == [
        f"{speech}: has the inputs ['input'], expected 2",
        f"{speaker}: has the inputs ['feats', 'feats_length'], expected 1",
    ]


def test_weights_are_checked_without_a_configuration(checkpoint: Path) -> None:
    (checkpoint / "cosyvoice2.yaml").unlink()
    change(checkpoint / "hift.pt", **{"conv_post.bias": torch.full((18,), math.nan)})
    assert len(verify_checkpoint(checkpoint)) == 2


def test_tokenizer_beyond_the_text_table_is_noticed(checkpoint: Path) -> None:
    path = checkpoint / "CosyVoice-BlankEN" / "vocab.json"
    vocabulary = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(vocabulary | {f"extra{i}": 1000 + i for i in range(50)}), encoding="utf-8")
    assert verify_checkpoint(checkpoint) == [f"{path}: 1070 tokens, but the text table has 1024 rows"]


def test_command_line_reports_and_exits(
    tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tiny_checkpoint)]) == 0
    assert capsys.readouterr() == (f"{tiny_checkpoint}: complete and sound\n", "")
    assert main([str(tmp_path / "nowhere")]) == 1
    report = capsys.readouterr()
    assert report.out == f"{tmp_path / 'nowhere'}: 1 problem\n"
    assert report.err == f"checkpoint directory {tmp_path / 'nowhere'} does not exist\n"
