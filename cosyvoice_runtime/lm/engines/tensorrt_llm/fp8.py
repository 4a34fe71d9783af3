"""The layers' matrices and their inputs in FP8, with one scale each.

TensorRT-LLM 1.2, ``tensorrt_llm/quantization/layers.py``, ``FP8Linear`` and ``FP8RowLinear``: a weight (out,
in) of type fp8, and ``activation_scaling_factor`` and ``weights_scaling_factor``, float32 of shape [1], by
which the 8-bit numbers are multiplied. ``quantization/quantize.py``, ``quantize_layers``: the head and the
embedding are left out. The scale of an input fits the largest one seen, as with the calibration ``max`` of
NVIDIA's ModelOpt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from cosyvoice_runtime.checkpoint import load_speakers
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.schema import Schema
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.engines.tensorrt_llm.checkpoint import BACKBONE, LAYER, QUANTISED, Source
from cosyvoice_runtime.lm.torch.decoder import generate
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.text import read_tokenizer
from cosyvoice_runtime.voice.speakers import import_speakers

FP8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FP8).max
ACTIVATION, WEIGHTS = "activation_scaling_factor", "weights_scaling_factor"
LEAST_SCALE = 1e-12
TEXTS = (
    "The train to the coast leaves from platform four, and nobody knows why.",
    "Could you tell me whether the library is still open on Sunday afternoons?",
    "Your order of three books costs forty-two dollars and arrives in May.",
    "今天下午三点在会议室见面，请把上次的材料带来。",
    "请问从这里走到火车站大概需要多长时间？",
    "雨停了以后，孩子们跑到花园里，数着老石墙上的蜗牛。",
)
"""Texts that are spoken to find how large inputs become: statements and questions in both languages."""
SPEECH_TOKENS = 50
"""Speech tokens of each text: two seconds."""
VOICES = 2
"""Most voices of the checkpoint that speak the texts, besides none."""


class Scales(NamedTuple):
    """Factors of a matrix's 8-bit inputs and weights."""

    activation: float
    weights: float


def fp8_schema(schema: Schema) -> Schema:
    """Names and shapes of a checkpoint in FP8, where each matrix has two scales."""
    changed: Schema = {}
    for name, shape in schema.items():
        changed[name] = shape
        if _is_matrix(name):
            changed |= dict.fromkeys(_scale_names(name), (1,))
    return changed


def fp8_dtypes(schema: Schema) -> dict[str, torch.dtype]:
    """Types of the tensors that differ from the checkpoint's own."""
    matrices = [name for name in schema if _is_matrix(name)]
    scales = [name for matrix in matrices for name in _scale_names(matrix)]
    return dict.fromkeys(matrices, FP8) | dict.fromkeys(scales, torch.float32)


def fp8_tensors(
    shares: Iterator[tuple[str, Tensor]], scales: Mapping[str, Scales]
) -> Iterator[tuple[str, Tensor]]:
    """A GPU's share of the tensors with matrices in FP8, each followed by its scales."""
    for name, share in shares:
        if name not in scales:
            yield name, share
            continue
        scale = scales[name]
        yield name, (share.float() / scale.weights).clamp(-LARGEST, LARGEST).to(FP8)
        for scale_name, value in zip(_scale_names(name), scale, strict=True):
            yield scale_name, torch.tensor([value])


def measured_scales(source: Source, tensors: Mapping[str, Tensor]) -> dict[str, Scales]:
    """Scales of every matrix by its name; the network speaks to find them, on the CPU in float32."""
    inputs = _largest_inputs(SpeechLM.from_tensors(source.config, tensors), _prompts(source))
    return {
        name: Scales(_scale(inputs[module]), _scale(_largest_weight(tensors, name)))
        for name, module in _matrices(source.config)
    }


def _matrices(config: SpeechLMConfig) -> Iterator[tuple[str, str]]:
    """Name of every matrix, and of the module of :class:`SpeechLM` that reads the same input."""
    modules = {
        "attention.qkv": "attention.qkv", "attention.dense": "attention.output",
        "mlp.fc": "mlp.gate_up", "mlp.gate": "mlp.gate_up", "mlp.proj": "mlp.down",
    }  # fmt: skip
    for layer in range(config.num_layers):
        for matrix, module in modules.items():
            yield f"transformer.layers.{layer}.{matrix}.weight", f"layers.{layer}.{module}"


def _largest_weight(tensors: Mapping[str, Tensor], name: str) -> float:
    """Largest absolute weight over all GPUs, and over all matrices that are joined in one."""
    _, _, layer, *rest = name.split(".")
    sources = LAYER[".".join(rest)].sources
    return max(float(tensors[f"{BACKBONE}.layers.{layer}.{source}"].abs().max()) for source in sources)


def _largest_inputs(lm: SpeechLM, prompts: list[Prompt]) -> dict[str, float]:
    """The largest absolute input of every module while the prompts are spoken."""
    largest: dict[str, float] = {}

    def watch(name: str, module: nn.Module) -> None:
        def see(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            largest[name] = max(largest.get(name, 0.0), float(inputs[0].abs().max()))

        module.register_forward_pre_hook(see)

    for name, module in lm.layers.named_modules(prefix="layers"):
        if isinstance(module, nn.Linear):
            watch(name, module)
    options = SamplingOptions(seed=0, min_tokens=SPEECH_TOKENS, max_tokens=SPEECH_TOKENS)
    with torch.inference_mode():
        for prompt in prompts:
            generate(lm, prompt, options)
    return largest


def _prompts(source: Source) -> list[Prompt]:
    """Every text without a voice, and in the checkpoint's own voices."""
    layout = Layout(source.directory)
    tokenizer, family = read_tokenizer(layout), layout.family
    speakers = import_speakers(load_speakers(layout), tokenizer.decode, "")
    voices = [voice for voice in speakers.values() if voice.transcript][:VOICES]
    texts = [tokenizer.encode(text) for text in TEXTS]
    told = [
        (tokenizer.encode(family.instructed(voice.transcript)), voice.speech_tokens.tolist())
        for voice in voices
    ]
    usual = tokenizer.encode(family.usual_instruction) if family.usual_instruction else []
    return [Prompt(text, transcript, speech) for text in texts for transcript, speech in [(usual, []), *told]]


def _scale(largest: float) -> float:
    return max(largest / LARGEST, LEAST_SCALE)


def _is_matrix(name: str) -> bool:
    module, _, kind = name.rpartition(".")
    return kind == "weight" and module.rpartition(".")[2] in QUANTISED


def _scale_names(matrix: str) -> tuple[str, str]:
    module = matrix.removesuffix("weight")
    return module + ACTIVATION, module + WEIGHTS
