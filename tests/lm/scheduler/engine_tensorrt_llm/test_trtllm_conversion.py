"""The converted checkpoint: its names and shapes, and that it is the same network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cosyvoice_runtime.checkpoint import Layout, ModelConfig, load_config
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.merged_vocabulary import SILENT, MergedVocabulary
from cosyvoice_runtime.checkpoint.sections_cosyvoice2 import config_from_sections
from cosyvoice_runtime.errors import CheckpointError, InvalidInput
from cosyvoice_runtime.lm import Prompt
from cosyvoice_runtime.lm.engines.tensorrt_llm.build import BIAS_FILE
from cosyvoice_runtime.lm.engines.tensorrt_llm.checkpoint import (
    LAYOUTS,
    EngineVocabulary,
    quantised_schema,
    rank_schema,
    rank_tensors,
)
from cosyvoice_runtime.lm.engines.tensorrt_llm.convert import ConversionOptions, convert
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.manifest import Manifest
from trtllm_fake.converted_lm import ConvertedLM

TESTS = Path(__file__).parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
PROMPT = Prompt(text=[5, 900, 1019, 7], prompt_text=[1, 2], prompt_speech=[0, 6560, 123, 41])


@pytest.fixture(scope="module", params=["cosyvoice2", "cosyvoice3"])
def any_checkpoint(request, family_checkpoints) -> Path:
    """Of each family in turn."""
    return family_checkpoints[request.param]


@pytest.fixture(scope="module")
def lm(any_checkpoint: Path) -> SpeechLM:
    config = load_config(any_checkpoint)
    return SpeechLM.from_tensors(config.speech_lm, load_tensors(Layout(any_checkpoint), "llm", config))


def exact(**options) -> ConversionOptions:
    """Weights as they are in the checkpoint, for equalities."""
    return ConversionOptions(dtype="float32", **options)


@pytest.fixture(scope="module")
def published() -> tuple[ModelConfig, dict[str, torch.Tensor]]:
    """The published architecture, and its tensors without memory."""
    sections = json.loads((TESTS / "manifests" / "config.json").read_text())
    config = config_from_sections(sections, sections["encoder_up_blocks"])
    shapes = json.loads((TESTS / "manifests" / "llm.json").read_text())
    return config, {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}


@pytest.fixture(
    scope="module", params=[(layout, tp_size) for layout in LAYOUTS for tp_size in (1, 2)], ids=str
)
def converted(request, any_checkpoint, tmp_path_factory) -> Path:
    layout, tp_size = request.param
    out = tmp_path_factory.mktemp("converted") / "out"
    convert(any_checkpoint, out, exact(layout=layout, tp_size=tp_size))
    return out


def vocabulary_of(directory: Path) -> EngineVocabulary:
    options = Manifest.read(directory).options
    return EngineVocabulary(**{each.name: options[each.name] for each in fields(EngineVocabulary)})


@pytest.mark.parametrize("gpus", [1, 2])
def test_published_checkpoint_has_tensorrt_llms_195_names_and_shapes(published, gpus):
    config, tensors = published
    vocabulary = EngineVocabulary.of("merged", 151663, config.speech_lm)
    layer = {
        "attention.qkv.weight": (1152 // gpus, 896),
        "attention.qkv.bias": (1152 // gpus,),
        "attention.dense.weight": (896, 896 // gpus),
        "mlp.fc.weight": (4864 // gpus, 896),
        "mlp.gate.weight": (4864 // gpus, 896),
        "mlp.proj.weight": (896, 4864 // gpus),
        "input_layernorm.weight": (896,),
        "post_layernorm.weight": (896,),
    }
    expected = {
        "transformer.vocab_embedding.weight": (158336, 896),
        **{f"transformer.layers.{n}.{name}": shape for n in range(24) for name, shape in layer.items()},
        "transformer.ln_f.weight": (896,),
        "lm_head.weight": (158336 // gpus, 896),
    }
    for rank in range(gpus):
        shares = rank_tensors(config.speech_lm, vocabulary, tensors, rank, gpus)
        assert {name: tuple(share.shape) for name, share in shares} == expected
    assert len(expected) == 195
    assert rank_schema(config.speech_lm, vocabulary, gpus) == expected


def test_published_speech_layout_has_a_head_of_6592_biased_rows(published):
    config, _ = published
    vocabulary = EngineVocabulary.of("speech", 151663, config.speech_lm)
    schema = rank_schema(config.speech_lm, vocabulary, 2)
    assert (vocabulary.output_rows, vocabulary.embedding_rows) == (6592, 6592 + 151663 + 2)
    assert (schema["lm_head.weight"], schema["lm_head.bias"]) == ((3296, 896), (3296,))
    assert schema["transformer.vocab_embedding.weight"] == (158257, 896)
    assert len(schema) == 196


def test_published_vocabulary_has_the_known_ids():
    vocabulary = MergedVocabulary(text_tokens=151663, speech_rows=6564)
    assert vocabulary.speech == slice(151663, 158227)
    assert (vocabulary.sos_id, vocabulary.task_id, vocabulary.rows) == (158227, 158228, 158336)


@pytest.mark.parametrize(("layout", "offset"), [("merged", 151924), ("speech", 0)])
def test_cosyvoice3_has_200_stop_ids_of_which_the_second_is_the_end(family_checkpoints, layout, offset):
    config = load_config(family_checkpoints["cosyvoice3"]).speech_lm
    vocabulary = EngineVocabulary.of(layout, 151924, config)
    assert vocabulary.stop_ids == range(offset + 6561, offset + 6761)
    assert vocabulary.end_id == offset + 6562
    assert vocabulary.output_rows == {"merged": 158720, "speech": 6784}[layout]


def test_forward_pass_of_the_converted_names_equals_the_torch_lm(converted, lm):
    vocabulary = vocabulary_of(converted)
    ids = vocabulary.input_ids([*PROMPT.prompt_text, *PROMPT.text], PROMPT.prompt_speech)
    logits = ConvertedLM(converted)(ids)
    if vocabulary.layout == "merged":
        logits = logits + load_file(converted / BIAS_FILE)["embedding_bias"]
    embeddings = lm.embed(PROMPT.segments())
    view = KVCache(lm.config, 1, len(ids)).view(0, 1)
    expected = lm.logits(lm(embeddings[None], torch.arange(len(ids))[None], view, len(ids))[0])
    torch.testing.assert_close(logits[:, vocabulary.speech], expected, rtol=1e-6, atol=2e-5)


def test_nothing_but_speech_has_probability(converted):
    vocabulary = vocabulary_of(converted)
    logits = ConvertedLM(converted)(vocabulary.input_ids(PROMPT.text, PROMPT.prompt_speech))
    if vocabulary.layout == "merged":
        logits = logits + load_file(converted / BIAS_FILE)["embedding_bias"]
    probabilities = logits.softmax(dim=-1)
    probabilities[:, vocabulary.speech] = 0
    assert torch.equal(probabilities, torch.zeros_like(probabilities))


def test_gpus_hold_what_one_gpu_holds(any_checkpoint, tmp_path):
    whole, halves = tmp_path / "one", tmp_path / "two"
    convert(any_checkpoint, whole, exact())
    convert(any_checkpoint, halves, exact(tp_size=2))
    one = load_file(whole / "rank0.safetensors")
    first, second = (load_file(halves / f"rank{rank}.safetensors") for rank in range(2))
    assert one.keys() == first.keys() == second.keys()
    for name, tensor in one.items():
        if ".qkv." in name:  # rows of q, k and v, each cut in half
            widths = [64, 32, 32]
            parts = [half.split([width // 2 for width in widths]) for half in (first[name], second[name])]
            joined = torch.cat([torch.cat(pair) for pair in zip(*parts, strict=True)])
        else:
            axis = next((i for i, size in enumerate(tensor.shape) if size != first[name].shape[i]), None)
            joined = first[name] if axis is None else torch.cat([first[name], second[name]], axis)
        assert torch.equal(joined, tensor), name


def test_bias_file_masks_text_and_gives_the_stock_head_its_bias(any_checkpoint, lm, tmp_path):
    convert(any_checkpoint, tmp_path / "out", ConversionOptions(dtype="float16"))
    vocabulary = vocabulary_of(tmp_path / "out")
    bias = load_file(tmp_path / "out" / BIAS_FILE)["embedding_bias"]
    assert (bias.dtype, tuple(bias.shape)) == (torch.float32, (vocabulary.output_rows,))
    published = lm.head.bias if lm.config.head_bias else torch.zeros(lm.config.speech_rows)
    assert torch.equal(bias[vocabulary.speech], published)
    assert (
        set(bias[: vocabulary.speech.start].tolist())
        == set(bias[vocabulary.speech.stop :].tolist())
        == {SILENT}
    )


def test_padded_rows_of_the_speech_head_are_silent_and_no_bias_file_is_written(any_checkpoint, lm, tmp_path):
    convert(any_checkpoint, tmp_path / "out", ConversionOptions(layout="speech"))
    tensors = load_file(tmp_path / "out" / "rank0.safetensors")
    assert set(tensors["lm_head.bias"][lm.config.speech_rows :].tolist()) == {SILENT}
    assert not tensors["lm_head.weight"][lm.config.speech_rows :].any()
    assert not (tmp_path / "out" / BIAS_FILE).exists()


def test_config_names_the_architecture(converted, lm):
    config = json.loads((converted / "config.json").read_text())
    vocabulary, gpus = vocabulary_of(converted), len(list(converted.glob("rank*.safetensors")))
    assert config["architecture"] == "Qwen2ForCausalLM"
    assert (config["dtype"], config["logits_dtype"], config["qwen_type"]) == ("float32", "float32", "qwen2")
    assert config["rotary_base"] == lm.config.rope_theta
    assert config["mapping"] == {"world_size": gpus, "tp_size": gpus, "pp_size": 1}
    assert config["vocab_size"] == vocabulary.output_rows
    assert config.get("embedding_rows", config["vocab_size"]) == vocabulary.embedding_rows


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_weights_are_written_in_the_dtype_asked_for(any_checkpoint, tmp_path, dtype):
    convert(any_checkpoint, tmp_path / "exact", exact())
    convert(any_checkpoint, tmp_path / "out", ConversionOptions(dtype=dtype))
    expected = load_file(tmp_path / "exact" / "rank0.safetensors")
    for name, tensor in load_file(tmp_path / "out" / "rank0.safetensors").items():
        assert torch.equal(tensor, expected[name].to(getattr(torch, dtype)))


@pytest.mark.parametrize(("weight_only", "algorithm", "bits"), [("int8", "W8A16", 8), ("int4", "W4A16", 4)])
def test_quantised_layout_round_trips(any_checkpoint, tmp_path, weight_only, algorithm, bits):
    """Weights are written as they are; what TensorRT-LLM makes of them has its shapes, and reads back."""
    convert(any_checkpoint, tmp_path / "plain", exact())
    convert(any_checkpoint, tmp_path / "out", exact(weight_only=weight_only))
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["quantization"] == {"quant_algo": algorithm, "kv_cache_quant_algo": None}
    tensors = load_file(tmp_path / "out" / "rank0.safetensors")
    plain = load_file(tmp_path / "plain" / "rank0.safetensors")
    assert all(torch.equal(tensors[name], plain[name]) for name in plain)
    quantised = quantise(tensors, bits)
    schema = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    assert {name: tuple(tensor.shape) for name, tensor in quantised.items()} == quantised_schema(schema, bits)
    modules = [
        f"transformer.layers.{layer}.{module}"
        for layer in range(2)
        for module in ("attention.qkv", "attention.dense", "mlp.fc", "mlp.gate", "mlp.proj")
    ]
    assert quantised.keys() - tensors.keys() == {f"{module}.per_channel_scale" for module in modules}
    for module in modules:
        scale = quantised[f"{module}.per_channel_scale"][:, None]
        back = unpack(quantised[f"{module}.weight"], bits).T * scale
        assert (back - tensors[f"{module}.weight"]).abs().le(scale / 2 * 1.001).all()


def quantise(tensors: dict[str, torch.Tensor], bits: int) -> dict[str, torch.Tensor]:
    """As TensorRT-LLM's ``weight_only_quantize_dict`` does: symmetric, a scale for each output, (in, out)."""
    result = {}
    for name, tensor in tensors.items():
        if any(f"{part}.weight" in name for part in ("qkv", "dense", "fc", "proj", "gate")):
            scale = tensor.abs().amax(dim=1) / (2 ** (bits - 1) - 1)
            result[name] = pack((tensor / scale[:, None]).round().to(torch.int8).T, bits)
            result[name.replace(".weight", ".per_channel_scale")] = scale
        else:
            result[name] = tensor
    return result


def pack(values: torch.Tensor, bits: int) -> torch.Tensor:
    if bits == 8:
        return values
    return (values[:, ::2] & 0xF) | (values[:, 1::2] << 4)


def unpack(values: torch.Tensor, bits: int) -> torch.Tensor:
    if bits == 8:
        return values.float()
    low, high = (values << 4) >> 4, values >> 4
    return torch.stack([low, high], dim=-1).flatten(1).float()


@pytest.mark.parametrize("gpus", [1, 2])
def test_fp8_checkpoint_is_nearly_the_same_network(any_checkpoint, tmp_path, gpus):
    """Matrices in 8 bits beside their two scales, everything else as it was; the logits move a little."""
    convert(any_checkpoint, tmp_path / "plain", exact(tp_size=gpus))
    convert(any_checkpoint, tmp_path / "out", exact(tp_size=gpus, weight_only="fp8"))
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["quantization"] == {"quant_algo": "FP8", "kv_cache_quant_algo": None}
    for rank in range(gpus):
        plain = load_file(tmp_path / "plain" / f"rank{rank}.safetensors")
        given = load_file(tmp_path / "out" / f"rank{rank}.safetensors")
        matrices = {name for name, tensor in given.items() if tensor.dtype == torch.float8_e4m3fn}
        assert len(matrices) == 5 * 2
        for name in plain.keys() - matrices:
            assert torch.equal(given[name], plain[name])
        for name in matrices:
            scale = given[name.replace(".weight", ".weights_scaling_factor")]
            assert given[name.replace(".weight", ".activation_scaling_factor")].item() > 0
            assert (scale.shape, scale.dtype) == ((1,), torch.float32)
            torch.testing.assert_close(given[name].float() * scale, plain[name], rtol=2**-4, atol=2e-3)
    vocabulary = vocabulary_of(tmp_path / "out")
    ids = vocabulary.input_ids(PROMPT.text, PROMPT.prompt_speech)
    exactly, nearly = (ConvertedLM(tmp_path / name)(ids)[:, vocabulary.speech] for name in ("plain", "out"))
    off = (nearly - exactly).norm() / exactly.norm()
    assert 1e-4 < off < 0.1


def test_same_source_and_options_are_left_alone(any_checkpoint, tmp_path):
    out, seen = tmp_path / "out", []
    assert convert(any_checkpoint, out, exact())
    before = (out / "rank0.safetensors").stat().st_mtime_ns
    assert convert(any_checkpoint, out, exact(), lambda name, number, total: seen.append(name)) == []
    assert ((out / "rank0.safetensors").stat().st_mtime_ns, seen) == (before, [])
    assert convert(any_checkpoint, out, exact(layout="speech")) == [
        "option layout was 'merged' when built, now 'speech'"
    ]


def test_progress_counts_every_tensor(any_checkpoint, tmp_path):
    told = []
    convert(any_checkpoint, tmp_path / "out", exact(tp_size=2), lambda *told_: told.append(told_))
    assert [(number, total) for _, number, total in told] == [(n, 38) for n in range(1, 39)]
    assert told[0][0] == "transformer.vocab_embedding.weight"


def test_directory_with_something_else_is_kept(any_checkpoint, tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(InvalidInput, match="is not empty"):
        convert(any_checkpoint, tmp_path, exact())
    assert (tmp_path / "mine.txt").read_text() == "precious"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "small"}, "layout: 'small' is not accepted; one of merged, speech"),
        ({"dtype": "float8"}, "dtype: 'float8' is not accepted; one of bfloat16, float16, float32"),
        ({"weight_only": "int2"}, "weight_only: 'int2' is not accepted; one of none, int8, int4, fp8"),
        ({"tp_size": 3}, "tp_size: 3 is not accepted; one of 1, 2: every GPU has as many heads"),
    ],
)
def test_options_that_do_not_fit_are_refused(any_checkpoint, tmp_path, options, message):
    with pytest.raises(InvalidInput, match=message):
        convert(any_checkpoint, tmp_path / "out", ConversionOptions(**options))
    assert not (tmp_path / "out").exists()


def test_damaged_source_leaves_nothing(any_checkpoint, tmp_path):
    source = Path(shutil.copytree(any_checkpoint, tmp_path / "source"))
    weights = Layout(source).weights("llm")
    weights.write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match=f"{weights.name}: "):
        convert(source, tmp_path / "out", exact())
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_nothing_imports_tensorrt_llm():
    module = "cosyvoice_runtime.lm.engines.tensorrt_llm.build"
    code = f"import sys, {module}; print([m for m in sys.modules if m.startswith('tensorrt')])"
    command = [sys.executable, "-c", code]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert answer.stdout == "[]\n"
