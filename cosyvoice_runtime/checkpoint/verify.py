"""Everything that is wrong with a checkpoint directory, at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from cosyvoice_runtime.checkpoint.checksums import read_checksums
from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.layout import PARTS, Layout, Part
from cosyvoice_runtime.checkpoint.merged_vocabulary import tokenizer_length
from cosyvoice_runtime.checkpoint.schema import part_schema
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.checkpoint.tensors import (
    TEXT_HEAD,
    TEXT_TABLE,
    all_tensors,
    load_speakers,
    network_tensors,
    schema_problems,
)
from cosyvoice_runtime.errors import CheckpointError


def verify_checkpoint(directory: str | Path) -> list[str]:
    """Read every file of a checkpoint directory and list what is wrong, file and tensor named.

    Beyond what loading checks: values are finite, the text head equals the text table, the tokenizer
    fits the table, the ONNX files open with the expected number of inputs, and all that ``SHA256SUMS`` lists
    is there.
    """
    layout = Layout(directory)
    problems: list[str] = []
    try:
        config = load_config(directory)
    except CheckpointError as error:
        problems, config = [str(error)], None
    checks: list[Callable[[], Iterable[str]]] = [
        partial(_missing_problems, layout),
        partial(_tokenizer_problems, layout, config),
        *(partial(_weight_problems, layout, part, config) for part in PARTS),
        partial(_speaker_problems, layout),
        lambda: _onnx_problems(layout.speech_tokenizer, 2),
        lambda: _onnx_problems(layout.speaker_encoder, 1),
    ]
    problems += [problem for check in checks for problem in _caught(check)]
    return list(dict.fromkeys(problems))  # several checks may miss the same file


def _missing_problems(layout: Layout) -> Iterator[str]:
    """Files that the list of checksums has and the directory has not."""
    for name in read_checksums(layout.directory):
        if not (layout.directory / name).is_file():
            yield f"{name} is missing in checkpoint directory {layout.directory}"


def _caught(check: Callable[[], Iterable[str]]) -> list[str]:
    try:
        return list(check())
    except CheckpointError as error:
        return [str(error)]


def _tokenizer_problems(layout: Layout, config: ModelConfig | None) -> Iterator[str]:
    for path in (layout.tokenizer_config, layout.merges) if layout.family.has_qwen2 else ():
        if not path.stat().st_size:
            yield f"{path}: is empty"
    length = tokenizer_length(layout)
    rows = config.speech_lm.text_vocab_size if config else length
    if length > rows:
        yield f"{layout.vocabulary}: {length} tokens, but the text table has {rows} rows"


def _weight_problems(layout: Layout, part: Part, config: ModelConfig | None) -> Iterator[str]:
    path = layout.weights(part)
    if config:
        schema = part_schema(part, config)
        tensors = network_tensors(path, part, schema)
        yield from (f"{path}: {problem}" for problem in schema_problems(tensors, schema))
    else:
        tensors = all_tensors(path)
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            yield f"{path}: tensor {name} holds NaN or infinity"
    if {TEXT_TABLE, TEXT_HEAD} <= tensors.keys() and not np.array_equal(
        tensors[TEXT_HEAD], tensors[TEXT_TABLE]
    ):
        yield f"{path}: tensor {TEXT_HEAD} differs from {TEXT_TABLE}, to which it is tied"


def _speaker_problems(layout: Layout) -> Iterator[str]:
    for speaker, tensors in load_speakers(layout).items():
        for name, tensor in tensors.items():
            if not np.isfinite(tensor).all():
                yield f"{layout.speakers}: speaker {speaker}: tensor {name} holds NaN or infinity"


def _onnx_problems(path: Path, inputs: int) -> Iterator[str]:
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common class of their own
        yield f"{path}: not readable as ONNX: {error}"
        return
    names = [node.name for node in session.get_inputs()]
    if len(names) != inputs:
        yield f"{path}: has the inputs {names}, expected {inputs}"
