"""A CosyVoice-300M directory: told by its configuration, made, read, verified and refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from cosyvoice_runtime.checkpoint import Layout, ModelConfig, hyperpyyaml, load_config, verify_checkpoint
from cosyvoice_runtime.checkpoint.merged_vocabulary import tokenizer_length
from cosyvoice_runtime.checkpoint.tensors import read_tensors
from cosyvoice_runtime.errors import CheckpointError
from cosyvoice_runtime.families import COSYVOICE_300M
from cosyvoice_runtime.text import read_tokenizer
from making import make_checkpoint
from making.architecture_cosyvoice300m import FULL, TINY, yaml_tree


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("made") / "tiny", "tiny", seed=7, family="cosyvoice300m")


@pytest.fixture
def directory(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy", ignore=shutil.ignore_patterns("SHA256SUMS")))


def change(path: Path, **tensors: torch.Tensor | None) -> None:
    content = torch.load(path, weights_only=True) | tensors
    torch.save({name: tensor for name, tensor in content.items() if tensor is not None}, path)


def test_tiny_is_sound(made: Path) -> None:
    assert verify_checkpoint(made) == []
    assert Layout(made).family is COSYVOICE_300M
    config = load_config(made)
    assert (config.flow, config.vocoder) == (TINY.flow, TINY.vocoder)
    assert config.speech_lm.text_vocab_size >= tokenizer_length(Layout(made)) > 1609
    assert {"cosyvoice.yaml", "speech_tokenizer_v1.onnx", "multilingual.tiktoken"} <= set(
        Layout(made).names()
    )
    assert not (made / "CosyVoice-BlankEN").exists()


def test_its_tokenizer_reads_language_tags_and_no_other_marks(made: Path) -> None:
    tokenizer = read_tokenizer(Layout(made))
    [tag, *words] = tokenizer.encode("<|yue|>hello[laughter]")
    assert tag == tokenizer.id_of("<|yue|>")
    assert tokenizer.decode(words) == "hello[laughter]"
    assert len(tokenizer) == tokenizer_length(Layout(made))


@pytest.mark.parametrize("config", [TINY, FULL], ids=["tiny", "full"])
def test_written_configuration_is_read_back(directory: Path, config: ModelConfig) -> None:
    hyperpyyaml.write(directory / "cosyvoice.yaml", yaml_tree(config))
    assert load_config(directory) == config


def test_directory_of_two_families_is_refused(directory: Path) -> None:
    (directory / "cosyvoice2.yaml").touch()
    with pytest.raises(CheckpointError, match=r"has cosyvoice2\.yaml and cosyvoice\.yaml: only one"):
        load_config(directory)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("llm.TransformerLM", "llm.Qwen2LM", "Qwen2LM is not supported; only TransformerLM"),
        ("decoder.ConditionalDecoder", "DiT.dit.DiT", "only ConditionalDecoder is"),
        ("attention_head_dim: 16", "", "lacks the key 'attention_head_dim'"),
        ("static_chunk_size: 1", "static_chunk_size: 4", "static_chunk_size is 4; only 1 is supported"),
        ("input_frame_rate: 50", "input_frame_rate: 25", "input_frame_rate is 25; only 50 is supported"),
        ("input_layer: linear_legacy", "input_layer: linear", "only linear_legacy is supported"),
        ("speech_token_size: 4096", "speech_token_size: 0", "expected a number above 0"),
    ],
)
def test_unsuitable_configuration_is_named(directory: Path, old: str, new: str, message: str) -> None:
    path = directory / "cosyvoice.yaml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(CheckpointError, match=rf"cosyvoice\.yaml.*{message}"):
        load_config(directory)


def test_everything_wrong_is_listed_at_once(directory: Path) -> None:
    change(directory / "llm.pt", **{"llm_decoder.bias": torch.zeros(4096)})
    change(directory / "flow.pt", **{"length_regulator.model.12.bias": None})
    change(directory / "hift.pt", **{"conv_post.bias": torch.full((18,), torch.nan)})
    (directory / "multilingual.tiktoken").write_text("no words", "ascii")
    (directory / "speech_tokenizer_v1.onnx").unlink()
    problems = "\n".join(verify_checkpoint(directory))
    for expected in (
        "llm.pt: tensor llm_decoder.bias has shape (4096,), expected (4097,)",
        "flow.pt: tensor length_regulator.model.12.bias is missing",
        "hift.pt: tensor conv_post.bias holds NaN or infinity",
        "multilingual.tiktoken: not a vocabulary of tiktoken's form",
        "speech_tokenizer_v1.onnx is missing",
    ):
        assert expected in problems


def test_old_names_of_weight_norm_are_read(directory: Path) -> None:
    tensors = torch.load(directory / "hift.pt", weights_only=True)
    old = {
        f"generator.{name}".replace("parametrizations.weight.original0", "weight_g").replace(
            "parametrizations.weight.original1", "weight_v"
        ): tensor
        for name, tensor in tensors.items()
    }
    torch.save(old, directory / "hift.pt")
    assert set(read_tensors(directory / "hift.pt")) != set(tensors)
    assert verify_checkpoint(directory) == []
