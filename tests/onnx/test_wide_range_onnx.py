"""Networks whose numbers reach far on ONNX Runtime, in each format, against float64 on torch."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch
from small_runtime import write
from test_onnx_lm import MAX_LEN, PROMPTS, prefill

from cosyvoice_runtime.arrays import within
from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.flow.onnx.flow import OnnxFlow, OnnxFlowStream
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.stream import FlowStream
from cosyvoice_runtime.flow.weights import dit_weights, unet_weights
from cosyvoice_runtime.lm.onnx.speech_lm import OnnxCachedLM, OnnxKVCache
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.lm.torch.speech_decoder import CachedLM
from cosyvoice_runtime.onnx.session import EstimatorFormats
from cosyvoice_runtime.token2wav.onnx_export import DIFFUSION_TRANSFORMER, UNET
from making import architecture, architecture_cosyvoice3
from making.random_tensors import random_tensors
from small_flow import random_tokens
from wide_range import error, made_prompt, wide_dit, wide_lm, wide_unet

STEPS = 3
LARGEST = 2.0**15


def spoken(stream: FlowStream | OnnxFlowStream, config: ModelConfig) -> torch.Tensor:
    state = stream.open(made_prompt(config.flow, 30))
    state.push(random_tokens(55, 1), last=True)
    [mel] = stream.advance([state])
    return torch.as_tensor(mel)


@pytest.mark.parametrize(
    ("family", "formats", "largest", "most"),
    [
        (architecture, EstimatorFormats(), LARGEST, 1e-5),
        (architecture, EstimatorFormats(pages="float16"), LARGEST, 3e-4),
        (architecture, EstimatorFormats(pages="float8"), LARGEST, 0.002),
        (architecture, EstimatorFormats(weights="int8"), 128.0, 0.05),
        (architecture_cosyvoice3, EstimatorFormats(), LARGEST, 1e-4),
        (architecture_cosyvoice3, EstimatorFormats(pages="float16"), LARGEST, 0.001),
    ],
)
def test_flow(
    family: ModuleType, formats: EstimatorFormats, largest: float, most: float, tmp_path: Path
) -> None:
    config, is_unet = family.TINY, family is architecture
    tensors = dict(random_tensors("flow", config, seed=1))
    tensors = wide_unet(tensors, largest, mids=2) if is_unet else wide_dit(tensors, largest, depth=3)
    writers = UNET if is_unet else DIFFUSION_TRANSFORMER
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    weights = (unet_weights if is_unet else dit_weights)(arrays)
    estimator = within(weights, "estimator.")
    write(tmp_path, writers.encoder(weights, config.flow))
    write(tmp_path, writers.estimator(estimator, config.flow, formats))
    write(tmp_path, writers.times(estimator, config.flow.estimator))
    found = spoken(OnnxFlowStream(OnnxFlow(config.flow, tmp_path, STEPS, 1), 8), config)
    full = Flow.from_tensors(config.flow, tensors, dtype=torch.float64, num_steps=STEPS)
    assert error(found, spoken(FlowStream(full, num_pages=8), config)) < most


@pytest.mark.parametrize(("weight_format", "most"), [("float32", 1e-5), ("int8", 0.1)])
@torch.inference_mode()
def test_speech_lm(config, published, open_onnx, weight_format, most):
    tensors = wide_lm(published, 1e4, config.num_layers)
    onnx_lm = open_onnx(weight_format, **{n: t for n, t in tensors.items() if t is not published[n]})
    full = SpeechLM.from_tensors(config, tensors, dtype=torch.float64)
    networks = (
        OnnxCachedLM(onnx_lm, OnnxKVCache(config, 1, MAX_LEN)),
        CachedLM(full, KVCache(config, 1, MAX_LEN, dtype=torch.float64)),
    )
    for compute in (
        lambda network: network.prefill([prefill(config, 0, PROMPTS[1].segments())]),
        lambda network: network.decode([0], [7]),
    ):
        found, expected = (torch.as_tensor(compute(network)) for network in networks)
        assert error(found, expected) < most
