"""The speech language model as a plain Qwen2ForCausalLM over one merged vocabulary.

Programs that know Qwen2 but not CosyVoice read this form; stage 1 converts for TensorRT-LLM and vLLM in its
own ways. Its ids, in order: the text tokenizer's, the speech rows (codes and stop ids), sos, task id, and
padding to a multiple of 128. Of CosyVoice3, whose sos and task id are rows of the speech table, both are
written a second time there, and the head gets a bias of zeros.

The output head has a bias, which Hugging Face's class does not have: ``lm_head.bias`` in
``model.safetensors`` must be loaded by the engine. Rows that are no speech id have zero weight and the bias
``SILENT``. It is finite so that arithmetic on logits (temperature, penalties, sums with a bias) never meets
inf - inf, and a power of two, so that it is the same number in float32, float16 and bfloat16; its
probability is exactly 0 in each.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from cosyvoice_runtime.checkpoint.as_torch import load_tensors, read_tensors
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.fresh_directory import fresh_directory
from cosyvoice_runtime.checkpoint.json_file import read_json
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.lm_rows import control_table, head_bias, read_recorded, recorded
from cosyvoice_runtime.checkpoint.merged_vocabulary import MergedVocabulary
from cosyvoice_runtime.checkpoint.safetensors_writer import write_safetensors
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.checkpoint.shapes import Schema
from cosyvoice_runtime.checkpoint.special_tokens import special_token_ids
from cosyvoice_runtime.checkpoint.tensors import TEXT_HEAD, TEXT_TABLE
from cosyvoice_runtime.errors import CheckpointError

SILENT = -16384.0
PREFIX = "llm.model."
"""What ``llm.pt`` puts before the names of Qwen2ForCausalLM."""
SPARE_ROWS = "spare_text_rows.safetensors"
"""Text table rows that no token uses: they have no place in the merged vocabulary, but in ``llm.pt``."""


def export_merged(layout: Layout, out_dir: str | Path, dtype: torch.dtype, force: bool = False) -> Path:
    """Write config.json, model.safetensors and the tokenizer's files of the merged form; returns the path.

    Args:
        out_dir: absent or empty unless ``force``.
        dtype: of the written weights; with the stored one, :func:`read_merged` gives back equal tensors.

    Raises:
        CheckpointError: as ``load_tensors``, the speech LM is no Qwen2, or the tokenizer has more
            tokens than the text table rows.
        InvalidInput: ``out_dir`` is not empty.
    """
    layout.require_qwen2("the merged form of the speech LM")
    model = load_config(layout.directory)
    config = model.speech_lm
    vocabulary = MergedVocabulary.of(layout, config)
    if vocabulary.text_tokens > config.text_vocab_size:
        raise CheckpointError(
            f"{layout.vocabulary}: {vocabulary.text_tokens} tokens, but {TEXT_TABLE} has "
            f"{config.text_vocab_size} rows"
        )
    tensors = load_tensors(layout, "llm", model)
    target = Path(out_dir)
    with fresh_directory(target, force) as building:
        _write_json(building / "config.json", _merged_config(layout, config, vocabulary, dtype))
        _write_tokenizer(layout, building, vocabulary)
        _write_weights(building, config, tensors, vocabulary, dtype)
    return target


def read_merged(directory: str | Path) -> dict[str, torch.Tensor]:
    """Tensors of a directory written by :func:`export_merged`, in the names of ``llm.pt``.

    Raises:
        CheckpointError: a file is missing or damaged, or was not written by :func:`export_merged`.
    """
    directory = Path(directory)
    tensors = read_tensors(_existing(directory / "model.safetensors"))
    vocabulary, config = recorded_vocabulary(_existing(directory / "config.json"))
    spare = read_tensors(_existing(directory / SPARE_ROWS))[TEXT_TABLE]
    try:
        table = tensors.pop("model.embed_tokens.weight")
        head, bias = tensors.pop("lm_head.weight"), tensors.pop("lm_head.bias")
    except KeyError as error:
        raise CheckpointError(f"{directory / 'model.safetensors'}: tensor {error} is missing") from error
    text = torch.cat([table[: vocabulary.text_tokens], spare])
    found = {f"{PREFIX}{name}": tensor for name, tensor in tensors.items()} | {
        TEXT_TABLE: text,
        TEXT_HEAD: text,
        "speech_embedding.weight": table[vocabulary.speech].clone(),
        "llm_decoder.weight": head[vocabulary.speech].clone(),
    }
    if config.control_rows is None:
        found["llm_embedding.weight"] = table[vocabulary.sos_id : vocabulary.length].clone()
    if config.head_bias:
        found["llm_decoder.bias"] = bias[vocabulary.speech].clone()
    return found


def recorded_vocabulary(path: Path) -> tuple[MergedVocabulary, SpeechLMConfig]:
    """The vocabulary and the sizes that the ``config.json`` of a merged form records.

    Raises:
        CheckpointError: it does not record one.
    """
    try:
        found = read_json(path)["cosyvoice2"]
        vocabulary = MergedVocabulary(
            int(found["text_tokens"]), int(found["speech_rows"]), len(found["stop_ids"])
        )
        return vocabulary, read_recorded(found["speech_lm"])
    except (CheckpointError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: does not record a merged vocabulary: {error!r}") from error


def _merged_config(
    layout: Layout, config: SpeechLMConfig, vocabulary: MergedVocabulary, dtype: torch.dtype
) -> dict[str, Any]:
    return read_json(layout.qwen2_config) | {
        "architectures": ["Qwen2ForCausalLM"],
        "vocab_size": vocabulary.rows,
        "tie_word_embeddings": False,
        "torch_dtype": str(dtype).removeprefix("torch."),
        "bos_token_id": vocabulary.sos_id,
        "eos_token_id": vocabulary.speech_offset + config.eos_id,
        "cosyvoice2": {
            "text_tokens": vocabulary.text_tokens,
            "speech_rows": vocabulary.speech_rows,
            "speech_offset": vocabulary.speech_offset,
            "stop_ids": [vocabulary.speech_offset + stop for stop in config.stop_ids],
            "sos_id": vocabulary.sos_id,
            "task_id": vocabulary.task_id,
            "speech_lm": recorded(config),
        },
    }


def _write_tokenizer(layout: Layout, directory: Path, vocabulary: MergedVocabulary) -> None:
    for path in (layout.vocabulary, layout.merges):
        shutil.copyfile(path, directory / path.name)
    config = read_json(layout.tokenizer_config)
    added = special_token_ids(len(read_json(layout.vocabulary)), layout.family.special_tokens)
    added |= {token: vocabulary.speech_offset + place for place, token in enumerate(vocabulary.tokens)}
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    config["added_tokens_decoder"] = {str(id_): {"content": token, **flags} for token, id_ in added.items()}
    _write_json(directory / "tokenizer_config.json", config)


def _write_weights(
    directory: Path,
    config: SpeechLMConfig,
    tensors: dict[str, torch.Tensor],
    vocabulary: MergedVocabulary,
    dtype: torch.dtype,
) -> None:
    width = tensors[TEXT_TABLE].shape[1]
    layers = {
        name: tensor
        for name, tensor in tensors.items()
        if name.startswith(PREFIX) and name not in (TEXT_TABLE, TEXT_HEAD)
    }
    schema: Schema = {
        "model.embed_tokens.weight": (vocabulary.rows, width),
        **{name.removeprefix(PREFIX): tuple(tensor.shape) for name, tensor in layers.items()},
        "lm_head.weight": (vocabulary.rows, width),
        "lm_head.bias": (vocabulary.rows,),
    }

    def merged() -> Iterator[tuple[str, torch.Tensor]]:
        yield "model.embed_tokens.weight", _merged_table(config, tensors, vocabulary)
        for name, tensor in layers.items():
            yield name.removeprefix(PREFIX), tensor
        yield "lm_head.weight", _speech_rows(tensors["llm_decoder.weight"], vocabulary, 0.0)
        yield "lm_head.bias", _speech_rows(head_bias(config, tensors), vocabulary, SILENT)

    write_safetensors(directory / "model.safetensors", schema, dtype, merged())
    spare = tensors[TEXT_TABLE][vocabulary.text_tokens :]
    write_safetensors(directory / SPARE_ROWS, {TEXT_TABLE: tuple(spare.shape)}, dtype, [(TEXT_TABLE, spare)])


def _merged_table(
    config: SpeechLMConfig, tensors: dict[str, torch.Tensor], vocabulary: MergedVocabulary
) -> torch.Tensor:
    text = tensors[TEXT_TABLE]
    used = [
        text[: vocabulary.text_tokens],
        tensors["speech_embedding.weight"],
        control_table(config, tensors),
    ]
    return torch.cat([*used, text.new_zeros(vocabulary.rows - vocabulary.length, text.shape[1])])


def _speech_rows(rows: torch.Tensor, vocabulary: MergedVocabulary, others: float) -> torch.Tensor:
    merged = rows.new_full((vocabulary.rows, *rows.shape[1:]), others)
    merged[vocabulary.speech] = rows
    return merged


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise CheckpointError(f"{path.name} is missing in {path.parent}")
    return path


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
