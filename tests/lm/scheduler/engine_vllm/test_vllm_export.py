"""The exported directory holds the network, and nothing that speech does not need."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from coded_vllm import ExportedLM
from safetensors.torch import load_file

from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.errors import EngineFileError, InvalidInput
from cosyvoice_runtime.lm import Prompt
from cosyvoice_runtime.lm.engines.vllm.export import (
    DTYPES,
    PROMPT_TABLES,
    PromptTables,
    export,
    not_finite_id,
    output_rows,
)
from cosyvoice_runtime.lm.prompt import PromptSegment, Table
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM

PROMPTS = [
    Prompt([3]),
    Prompt([900, 17, 4], prompt_text=[8, 1019]),
    Prompt([5, 6, 7], prompt_speech=[0, 6560, 41, 41]),
]


@pytest.fixture(scope="module", params=["cosyvoice2", "cosyvoice3"])
def any_checkpoint(request, family_checkpoints) -> Path:
    """Of each family in turn."""
    return family_checkpoints[request.param]


@pytest.fixture(scope="module")
def vllm_exports(any_checkpoint, tmp_path_factory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("vllm")
    for dtype in DTYPES:
        export(any_checkpoint, directory / dtype, dtype)
    return {dtype: directory / dtype for dtype in DTYPES}


@pytest.fixture(scope="module")
def config(any_checkpoint):
    return load_config(any_checkpoint)


@pytest.fixture(scope="module")
def lm(any_checkpoint, config) -> SpeechLM:
    return SpeechLM.from_tensors(config.speech_lm, load_tensors(Layout(any_checkpoint), "llm", config))


def reference(lm: SpeechLM, parts: list[PromptSegment]) -> torch.Tensor:
    """Logits [positions, speech rows] of the library's own network."""
    embeddings = lm.embed(parts)
    length = len(embeddings)
    cache = KVCache(lm.config, 1, length).view(0, 1)
    with torch.inference_mode():
        return lm.logits(lm(embeddings[None], torch.arange(length)[None], cache, length)[0])


@pytest.mark.parametrize("prompt", PROMPTS)
def test_logits_equal_those_of_the_torch_network(vllm_exports, lm, config, prompt):
    spoken = [7, 6560, 0, 12]
    exported, tables = ExportedLM(vllm_exports["float32"]), PromptTables.read(vllm_exports["float32"])
    actual = exported.logits(tables.embed(prompt.segments()), spoken)
    expected = reference(lm, [*prompt.segments(), PromptSegment(Table.SPEECH, spoken)])
    torch.testing.assert_close(actual[:, : config.speech_lm.speech_rows], expected, rtol=1e-5, atol=2e-5)


def test_padding_is_never_the_best_and_has_a_row_of_its_own(vllm_exports, config):
    rows = output_rows(config.speech_lm)
    assert rows % 64 == 0
    assert config.speech_lm.speech_rows <= not_finite_id(config.speech_lm) < rows
    exported, tables = ExportedLM(vllm_exports["float32"]), PromptTables.read(vllm_exports["float32"])
    logits = exported.logits(tables.embed(PROMPTS[1].segments()), [1, 2])
    padding = logits[:, config.speech_lm.speech_rows :]
    assert padding.shape[1] == rows - config.speech_lm.speech_rows
    assert (padding < logits[:, : config.speech_lm.speech_rows].min() - 1000).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_weights_are_the_checkpoint_s_rounded_to_16_bits(vllm_exports, dtype):
    exact = load_file(vllm_exports["float32"] / "model.safetensors")
    rounded = load_file(vllm_exports[dtype] / "model.safetensors")
    assert rounded.keys() == exact.keys()
    for name, tensor in rounded.items():
        assert torch.equal(tensor, exact[name].to(getattr(torch, dtype))), name


def test_text_vocabulary_and_text_head_are_left_out(vllm_exports, config):
    content = json.loads((vllm_exports["float32"] / "config.json").read_text())
    lm = config.speech_lm
    assert content["vocab_size"] == output_rows(lm) < lm.text_vocab_size + lm.speech_rows
    tensors = load_file(vllm_exports["float32"] / "model.safetensors")
    assert tensors["model.embed_tokens.weight"].shape == (output_rows(lm), lm.hidden_size)
    assert tensors["lm_head.weight"].shape == (output_rows(lm), lm.hidden_size)
    assert tensors["lm_head.bias"].shape == (output_rows(lm),)
    assert len(tensors) == 12 * lm.num_layers + 4


def test_prompt_tables_hold_all_three_vocabularies(vllm_exports, lm):
    tables = PromptTables.read(vllm_exports["float32"])
    for prompt in PROMPTS:
        torch.testing.assert_close(
            tables.embed(prompt.segments()), lm.embed(prompt.segments()), rtol=0, atol=0
        )


def test_unchanged_export_is_left_alone_and_a_changed_one_replaced(any_checkpoint, tmp_path):
    out = tmp_path / "export"
    assert export(any_checkpoint, out, "float16")
    written = (out / "model.safetensors").stat().st_mtime_ns
    assert export(any_checkpoint, out, "float16") == []
    assert (out / "model.safetensors").stat().st_mtime_ns == written
    (reason,) = export(any_checkpoint, out, "bfloat16")
    assert "dtype was 'float16' when built, now 'bfloat16'" in reason
    assert json.loads((out / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_directory_with_something_else_is_not_replaced(any_checkpoint, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(InvalidInput):
        export(any_checkpoint, tmp_path, "float16")
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_unknown_dtype_is_refused(any_checkpoint, tmp_path):
    with pytest.raises(
        InvalidInput, match="dtype: 'int8' is not accepted; one of bfloat16, float16, float32"
    ):
        export(any_checkpoint, tmp_path / "export", "int8")


@pytest.mark.parametrize("damage", ["missing", "short", "other"])
def test_damaged_prompt_tables_are_refused(vllm_exports, tmp_path, damage):
    directory = shutil.copytree(vllm_exports["float16"], tmp_path / "export")
    path = directory / PROMPT_TABLES
    if damage == "missing":
        path.unlink()
    elif damage == "short":
        path.write_bytes(path.read_bytes()[:-5])
    else:
        shutil.copy(directory / "model.safetensors", path)
    with pytest.raises(EngineFileError, match=r"tables\.safetensors: missing or damaged"):
        PromptTables.read(directory)
