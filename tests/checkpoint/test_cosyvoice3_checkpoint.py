"""A CosyVoice3 directory: told by its configuration, made, read, verified and refused."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cosyvoice_runtime.checkpoint import (
    Layout,
    ModelConfig,
    hyperpyyaml,
    load_config,
    verify_checkpoint,
)
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.layout import PARTS, Part
from cosyvoice_runtime.checkpoint.merged_vocabulary import tokenizer_length
from cosyvoice_runtime.errors import CheckpointError, InvalidInput
from cosyvoice_runtime.families import COSYVOICE2, COSYVOICE3
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.vocoder.torch import HiFT
from making import architecture_cosyvoice3, make_checkpoint
from making.architecture_cosyvoice3 import FULL, TINY, yaml_tree
from making.random_tensors import MEAN_LOG_MEL, random_tensors
from prompts import prompt_of_tensors


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("made") / "tiny", "tiny", seed=7, family="cosyvoice3")


@pytest.fixture
def directory(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy", ignore=shutil.ignore_patterns("SHA256SUMS")))


def change(path: Path, **tensors: torch.Tensor | None) -> None:
    content = torch.load(path, weights_only=True) | tensors
    torch.save({name: tensor for name, tensor in content.items() if tensor is not None}, path)


def test_tiny_is_sound(made: Path) -> None:
    assert verify_checkpoint(made) == []
    assert Layout(made).family is COSYVOICE3
    config = load_config(made)
    rows = config.speech_lm.text_vocab_size
    assert config == replace(TINY, speech_lm=replace(TINY.speech_lm, text_vocab_size=rows))
    assert rows >= tokenizer_length(Layout(made)) > 281
    assert {"cosyvoice3.yaml", "speech_tokenizer_v3.onnx"} <= set(Layout(made).names())


def test_cosyvoice2_is_told_from_it(tiny_checkpoint: Path) -> None:
    assert Layout(tiny_checkpoint).family is COSYVOICE2


@pytest.mark.parametrize("config", [TINY, FULL], ids=["tiny", "full"])
def test_written_configuration_is_read_back(directory: Path, config: ModelConfig) -> None:
    qwen2 = load_config(directory).speech_lm
    hyperpyyaml.write(directory / "cosyvoice3.yaml", yaml_tree(config))
    read = load_config(directory)
    assert (read.flow, read.vocoder) == (config.flow, config.vocoder)
    assert read.speech_lm == replace(qwen2, speech_tokens=config.speech_lm.speech_tokens)


def test_directory_of_two_families_is_refused(directory: Path) -> None:
    (directory / "cosyvoice2.yaml").touch()
    with pytest.raises(CheckpointError, match=r"has cosyvoice2\.yaml and cosyvoice3\.yaml: only one"):
        load_config(directory)


def test_configuration_of_another_family_is_refused(directory: Path, tiny_checkpoint: Path) -> None:
    shutil.copy(tiny_checkpoint / "cosyvoice2.yaml", directory / "cosyvoice3.yaml")
    with pytest.raises(
        CheckpointError, match=r"cosyvoice3\.yaml.*Qwen2LM is not supported; only CosyVoice3LM"
    ):
        load_config(directory)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("dim_head: 16", "", "lacks the key 'dim_head'"),
        ("mu_dim: 80", "mu_dim: 64", "estimator.mu_dim is 64; only 80, the mel's size, is supported"),
        ("DiT.dit.DiT", "DiT.dit.UViT", "only DiT is"),
        ("depth: 3", "depth: 0", "depth is 0, expected a number above 0"),
        ("chunk_size: 25", "chunk_size: 0", "expected a number above 0"),
    ],
)
def test_unsuitable_configuration_is_named(directory: Path, old: str, new: str, message: str) -> None:
    path = directory / "cosyvoice3.yaml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(CheckpointError, match=rf"cosyvoice3\.yaml.*{message}"):
        load_config(directory)


def test_everything_wrong_is_listed_at_once(directory: Path) -> None:
    change(directory / "llm.pt", **{"llm_decoder.bias": torch.zeros(6761)})
    change(directory / "flow.pt", **{"pre_lookahead_layer.conv1.bias": None})
    change(directory / "hift.pt", **{"conv_pre.parametrizations.weight.original1": torch.zeros(32, 80, 7)})
    (directory / "speech_tokenizer_v3.onnx").unlink()
    problems = "\n".join(verify_checkpoint(directory))
    for expected in (
        "llm.pt: tensor llm_decoder.bias is unknown",
        "flow.pt: tensor pre_lookahead_layer.conv1.bias is missing",
        "hift.pt: tensor conv_pre.parametrizations.weight.original1 has shape (32, 80, 7)",
        "speech_tokenizer_v3.onnx is missing",
    ):
        assert expected in problems
    assert len(problems.splitlines()) == 4


def test_same_seed_same_bytes(made: Path, tmp_path: Path) -> None:
    again = make_checkpoint(tmp_path / "again", "tiny", seed=7, family="cosyvoice3")
    assert (again / "SHA256SUMS").read_bytes() == (made / "SHA256SUMS").read_bytes()


def test_full_is_written_as_safetensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(architecture_cosyvoice3, "FULL", TINY)
    path = make_checkpoint(tmp_path / "full", "full", dtype=torch.bfloat16, family="cosyvoice3")
    assert {f"{part}.safetensors" for part in PARTS} <= {file.name for file in path.iterdir()}
    assert verify_checkpoint(path) == []
    assert load_config(path) == TINY


def test_unknown_family_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"family: 'cosyvoice9'.*cosyvoice2, cosyvoice3"):
        make_checkpoint(tmp_path / "x", family="cosyvoice9")


@pytest.mark.parametrize("part", PARTS)
def test_weights_load(made: Path, part: Part) -> None:
    config = load_config(made)
    loaded = load_tensors(Layout(made), part, config)
    for name, tensor in random_tensors(part, config, 7):
        assert torch.equal(loaded[name], tensor)


def test_mel_is_in_the_range_of_log_mels_and_follows_the_tokens(made: Path) -> None:
    config = load_config(made)
    flow = Flow.from_tensors(config.flow, load_tensors(Layout(made), "flow", config))
    mels = []
    for seed in (0, 1):
        draw = torch.Generator().manual_seed(seed)
        prompt = prompt_of_tensors(
            tokens=torch.randint(6561, (25,), generator=draw),
            mel=2 * torch.randn(50, 80, generator=draw) + MEAN_LOG_MEL,
            speaker=torch.ones(192),
        )
        mels += flow.generate([prompt], [torch.randint(6561, (75,), generator=draw).tolist()])
    mel, other = mels
    assert -7 < mel.mean() < -5
    assert 1 < mel.std() < 3
    assert (mel - other).square().mean().sqrt() > 0.3


def test_waveform_is_audible_voiced_and_not_clipped() -> None:
    vocoder, draw = TINY.vocoder, torch.Generator().manual_seed(0)
    hift = HiFT.from_tensors(vocoder, dict(random_tensors("hift", TINY, 0)))
    mel = 1.8 * torch.randn(1, 80, 150, generator=draw) + MEAN_LOG_MEL
    assert 80 < hift.f0(mel).median() < 350
    wave = hift(mel, torch.from_numpy(hift.utterance_noise(0).peek(150))[None])
    assert 0.02 < wave.std() < 0.2
    assert (wave.abs() >= vocoder.audio_limit).float().mean() < 0.001
    silent_source = hift.decode(mel, torch.zeros_like(wave))
    assert (wave - silent_source).std() > 0.2 * wave.std()
