"""Names and shapes of a converted checkpoint, against the model class that will load it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from cosyvoice_runtime.checkpoint.schema import Schema
from cosyvoice_runtime.compiled.manifest import Manifest
from cosyvoice_runtime.errors import EngineFileError
from cosyvoice_runtime.preflight.modules import attempt
from cosyvoice_runtime.preflight.outcome import Outcome, failed, judged, unchecked
from cosyvoice_runtime.serving.lm.engines.tensorrt_llm.build.flags import MODEL_CLASS, MODEL_FILE
from cosyvoice_runtime.serving.lm.engines.tensorrt_llm.conversion.parameters import quantised_schema

BITS = {"int8": 8, "int4": 4}
SHOWN = 3
"""Problems named for each file; a wrong size shows in every layer."""


def check_converted(directory: Path | None) -> Iterator[Outcome]:
    """Every tensor that the model asks for is there, in its shape, on each GPU, and no other."""
    if directory is None:
        yield unchecked("converted checkpoint", "none was named: --checkpoint DIRECTORY")
        return
    try:
        options = Manifest.read(directory).options
        headers = [_header(directory / f"rank{rank}.safetensors") for rank in range(options["tp_size"])]
    except (EngineFileError, KeyError, OSError, SafetensorError) as error:
        yield failed(f"{directory}", f"is no converted checkpoint: {error}")
        return
    models, failure = attempt("tensorrt_llm.models")
    if failure:
        yield unchecked(f"{directory}", failure)
        return
    model_class = models.QWenForCausalLM if options["layout"] == "merged" else speech_class()
    for rank, header in enumerate(headers):
        config = models.PretrainedConfig.from_checkpoint(str(directory))
        config.set_rank(rank)
        asked = _asked(model_class(config))
        given = quantised_schema(header, BITS[options["weight_only"]]) if _quantised(options) else header
        yield judged(f"{directory}/rank{rank}.safetensors", _problems(given, asked), f"{len(header)} tensors")


def _asked(model: Any) -> Schema:
    """Every weight that a checkpoint has to bring.

    The decoder computes its tables of positions itself (``embed_positions``, ``rotary_inv_freq``,
    ``embed_positions_for_gpt_attention``) and registers them as parameters with ``is_buffer`` set;
    TensorRT-LLM's loader (``PretrainedModel.load``) asks for none of them.
    """
    return {name: tuple(value.shape) for name, value in model.named_parameters() if not value.is_buffer}


def speech_class() -> Any:
    """The model class of the speech layout, loaded as ``trtllm-build`` loads it."""
    loader = SourceFileLoader("models", str(MODEL_FILE))
    spec = spec_from_loader("models", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return getattr(module, MODEL_CLASS)


def _quantised(options: Any) -> bool:
    return options["weight_only"] in BITS


def _header(path: Path) -> Schema:
    with safe_open(path, framework="pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 - no dict


def _problems(given: Schema, asked: Schema) -> list[str]:
    problems = [f"{name} is missing" for name in asked if name not in given]
    problems += [f"{name} is unknown to the model" for name in given if name not in asked]
    problems += [
        f"{name} is {given[name]}, the model asks for {asked[name]}"
        for name in given
        if name in asked and given[name] != asked[name]
    ]
    more = len(problems) - SHOWN
    return [*problems[:SHOWN], f"and {more} more"] if more > 0 else problems
