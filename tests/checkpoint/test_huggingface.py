from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM, Qwen2Model

from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.huggingface import (
    PREFIX,
    SILENT,
    SPARE_ROWS,
    export_merged,
    read_merged,
)
from cosyvoice_runtime.checkpoint.lm_rows import control_table, head_bias
from cosyvoice_runtime.checkpoint.merged_vocabulary import MergedVocabulary
from cosyvoice_runtime.errors import CheckpointError, InvalidInput
from making import make_checkpoint


@pytest.fixture(scope="module", params=["cosyvoice2", "cosyvoice3"])
def source(request, tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small checkpoint of each family whose speech LM is a Qwen2."""
    if request.param == "cosyvoice2":
        return tiny_checkpoint
    return make_checkpoint(tmp_path_factory.mktemp("family") / "tiny", "tiny", seed=0, family=request.param)


@pytest.fixture(scope="module")
def merged(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("merged") / "llm"
    return export_merged(Layout(source), out, torch.float32)


def llm_tensors(directory: Path) -> dict[str, torch.Tensor]:
    return load_tensors(Layout(directory), "llm", load_config(directory))


def test_published_vocabulary_has_the_known_ids() -> None:
    vocabulary = MergedVocabulary(text_tokens=151663, speech_rows=6564)
    assert vocabulary.speech == slice(151663, 158227)
    assert (vocabulary.sos_id, vocabulary.task_id, vocabulary.rows) == (158227, 158228, 158336)
    assert vocabulary.tokens[6561 - 1 :][:2] == ["<|s_6560|>", "<|eos1|>"]
    assert len(vocabulary.tokens) == vocabulary.length - vocabulary.text_tokens


def test_round_trip_is_exact(merged: Path, source: Path) -> None:
    expected, actual = llm_tensors(source), read_merged(merged)
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_round_trip_in_a_smaller_dtype_is_that_dtype(
    source: Path, tmp_path: Path, dtype: torch.dtype
) -> None:
    actual = read_merged(export_merged(Layout(source), tmp_path / "out", dtype))
    for name, tensor in llm_tensors(source).items():
        assert torch.equal(actual[name], tensor.to(dtype))
    assert load_file(tmp_path / "out" / "model.safetensors")["lm_head.bias"][0].item() == SILENT


@torch.no_grad()
def test_hugging_face_model_gives_the_logits_of_llm_pt(merged: Path, source: Path) -> None:
    config, tensors = load_config(source).speech_lm, llm_tensors(source)
    vocabulary = MergedVocabulary.of(Layout(source), config)
    text, speech = torch.tensor([5, 900, 1019, 7]), torch.tensor([0, 6560, 123])

    base = Qwen2Model(Qwen2Config.from_pretrained(source / "CosyVoice-BlankEN")).eval()
    names = [name for name in tensors if name.startswith(f"{PREFIX}model.")]
    base.load_state_dict({name.removeprefix(f"{PREFIX}model."): tensors[name] for name in names})
    sos, task = control_table(config, tensors).split(1)
    table = tensors[f"{PREFIX}model.embed_tokens.weight"]
    embedded = torch.cat([sos, table[text], task, tensors["speech_embedding.weight"][speech]])
    hidden = base(inputs_embeds=embedded[None]).last_hidden_state
    expected = hidden @ tensors["llm_decoder.weight"].T + head_bias(config, tensors)

    model = Qwen2ForCausalLM.from_pretrained(merged).eval()
    ids = torch.cat(
        [
            torch.tensor([vocabulary.sos_id]),
            text,
            torch.tensor([vocabulary.task_id]),
            speech + vocabulary.speech_offset,
        ]
    )
    logits = model(ids[None]).logits + load_file(merged / "model.safetensors")["lm_head.bias"]
    assert torch.allclose(logits[:, :, vocabulary.speech], expected, rtol=0, atol=1e-5)
    probabilities = logits.softmax(dim=-1)
    assert torch.equal(probabilities[:, :, : vocabulary.speech_offset].sum(), torch.tensor(0.0))
    assert torch.equal(probabilities[:, :, vocabulary.sos_id :].sum(), torch.tensor(0.0))


def test_config_records_the_ids(merged: Path, source: Path) -> None:
    lm = load_config(source).speech_lm
    config = json.loads((merged / "config.json").read_text())
    recorded = config["cosyvoice2"]
    offset = recorded["speech_offset"]
    assert config["tie_word_embeddings"] is False
    assert config["vocab_size"] % 128 == 0
    assert config["eos_token_id"] == offset + lm.eos_id
    assert recorded["stop_ids"] == [offset + 6561 + number for number in range(len(lm.stop_ids))]


def test_hugging_face_tokenizer_knows_the_added_tokens(merged: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(merged)
    recorded = json.loads((merged / "config.json").read_text())["cosyvoice2"]
    assert len(tokenizer) == recorded["task_id"] + 1
    ids = tokenizer("<|sos|>hello[breath]<|task_id|><|s_0|><|s_6560|><|eos1|>")["input_ids"]
    offset = recorded["speech_offset"]
    assert ids[0] == recorded["sos_id"]
    assert ids[-4:] == [recorded["task_id"], offset, offset + 6560, offset + 6561]
    assert offset > ids[-5] >= 1000


def test_tokenizer_larger_than_the_text_table_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    path = Layout(checkpoint).vocabulary
    vocabulary = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(
        json.dumps({**vocabulary, **{f"extra{i}": 1000 + i for i in range(50)}}), encoding="utf-8"
    )
    with pytest.raises(CheckpointError, match=r"vocab\.json: 1070 tokens, but .* has 1024 rows"):
        export_merged(Layout(checkpoint), tmp_path / "out", torch.float32)
    assert not (tmp_path / "out").exists()


def test_directory_in_use_is_kept(merged: Path, tiny_checkpoint: Path) -> None:
    with pytest.raises(InvalidInput, match="is not empty"):
        export_merged(Layout(tiny_checkpoint), merged, torch.float32)


def test_damaged_export_is_named(tiny_checkpoint: Path, tmp_path: Path) -> None:
    out = export_merged(Layout(tiny_checkpoint), tmp_path / "out", torch.float32)
    weights = load_file(out / "model.safetensors")
    save_file({name: weights[name] for name in weights if name != "lm_head.bias"}, out / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"model\.safetensors: tensor 'lm_head.bias' is missing"):
        read_merged(out)
    (out / SPARE_ROWS).unlink()
    with pytest.raises(CheckpointError, match=f"{SPARE_ROWS} is missing in {out}"):
        read_merged(out)
    (out / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"config\.json: does not record a merged vocabulary"):
        read_merged(out)
