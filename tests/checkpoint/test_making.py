from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from cosyvoice_runtime.checkpoint import (
    Layout,
    ModelConfig,
    load_config,
    verify_checkpoint,
)
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.layout import PARTS, Part
from cosyvoice_runtime.checkpoint.merged_vocabulary import tokenizer_length
from cosyvoice_runtime.checkpoint.schema import part_schema
from cosyvoice_runtime.checkpoint.tensors import TEXT_HEAD, TEXT_TABLE
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families.tokens import QWEN2_TOKENS
from making import architecture, make_checkpoint
from making.architecture import FULL, TINY
from making.random_tensors import random_tensors

SHALLOW = replace(
    FULL,
    speech_lm=replace(FULL.speech_lm, num_layers=1, text_vocab_size=64),
    flow=replace(
        FULL.flow,
        encoder=replace(FULL.flow.encoder, num_layers=1, num_up_layers=1),
        estimator=replace(FULL.flow.estimator, num_mid_stages=1, blocks_per_stage=1),
    ),
)
"""The published widths in few layers."""
SCRIPT = Path(__file__).parents[2] / "scripts" / "make_checkpoint.py"


def digests(directory: Path) -> dict[str, str]:
    files = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def run_script(*arguments: str, threads: int = 1) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(SCRIPT.parents[1])}
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        env=environment,
        text=True,
        capture_output=True,
        check=False,
    )


def test_tiny_is_sound(tiny_checkpoint: Path) -> None:
    assert verify_checkpoint(tiny_checkpoint) == []
    config = load_config(tiny_checkpoint)
    rows = config.speech_lm.text_vocab_size
    assert config == replace(TINY, speech_lm=replace(TINY.speech_lm, text_vocab_size=rows))
    assert tokenizer_length(Layout(tiny_checkpoint)) <= rows


def test_same_seed_same_bytes_in_another_process_with_more_threads(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    result = run_script(str(tmp_path / "again"), "--seed", "7", threads=2)
    assert result.returncode == 0, result.stderr
    assert "flow: 211 tensors" in result.stderr
    assert digests(tmp_path / "again") == digests(tiny_checkpoint)


def test_other_seed_gives_other_weights_and_the_same_text_files(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    other = digests(make_checkpoint(tmp_path / "other", seed=8))
    changed = {name for name, digest in digests(tiny_checkpoint).items() if other[name] != digest}
    weights = {"llm.pt", "flow.pt", "hift.pt", "speech_tokenizer_v2.onnx", "campplus.onnx", "spk2info.pt"}
    assert changed == {*weights, "SHA256SUMS"}


def test_script_refuses_to_overwrite_unless_forced(tiny_checkpoint: Path, checkpoint: Path) -> None:
    (checkpoint / "llm.pt").write_bytes(b"mine")
    result = run_script(str(checkpoint), "--seed", "7")
    assert result.returncode == 1
    assert "is not empty" in result.stderr
    assert (checkpoint / "llm.pt").read_bytes() == b"mine"
    assert run_script(str(checkpoint), "--seed", "7", "--force").returncode == 0
    assert digests(checkpoint) == digests(tiny_checkpoint)


@pytest.mark.parametrize(("size", "seed"), [("huge", 0), ("tiny", -1)])
def test_bad_arguments_are_refused(tmp_path: Path, size: str, seed: int) -> None:
    with pytest.raises(InvalidInput):
        make_checkpoint(tmp_path / "x", size, seed)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_full_is_written_as_tied_safetensors_of_the_chosen_dtype(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(architecture, "FULL", TINY)
    path = make_checkpoint(tmp_path / "full", "full", seed=1, dtype=torch.bfloat16)
    config = load_config(path)
    assert config == TINY
    for part in PARTS:
        loaded = load_tensors(Layout(path), part, config)
        for name, tensor in random_tensors(part, config, 1):
            assert torch.equal(loaded[name], tensor.bfloat16())
    with safe_open(path / "llm.safetensors", "pt") as file:
        assert TEXT_HEAD not in file.keys()  # noqa: SIM118 (safe_open is no mapping)
        assert TEXT_TABLE in file.keys()  # noqa: SIM118
    assert verify_checkpoint(path) == []


@pytest.mark.parametrize("config", [TINY, SHALLOW])
@pytest.mark.parametrize("part", PARTS)
def test_random_tensors_follow_the_schema(part: Part, config: ModelConfig) -> None:
    made = {name: tuple(tensor.shape) for name, tensor in random_tensors(part, config, 0)}
    schema = part_schema(part, config)
    schema.pop(TEXT_HEAD, None)
    assert list(made.items()) == list(schema.items())


def test_tensors_are_made_one_at_a_time() -> None:
    tensors = random_tensors("llm", FULL, 0)
    assert next(tensors)[0] == "llm_embedding.weight"  # the 0.5 GB text table comes next and is not made


def test_tokenizer_config_has_the_published_form(tiny_checkpoint: Path) -> None:
    layout = Layout(tiny_checkpoint)
    size = len(json.loads(layout.vocabulary.read_text(encoding="utf-8")))
    added = json.loads(layout.tokenizer_config.read_text(encoding="utf-8"))["added_tokens_decoder"]
    assert {int(id_): entry["content"] for id_, entry in added.items()} == dict(enumerate(QWEN2_TOKENS, size))
