"""Fused kernels of networks whose numbers reach far, in half precision against float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.flow.kernels.choice import fused_solver
from cosyvoice_runtime.flow.kernels.fused_dit import DiTTiles
from cosyvoice_runtime.flow.torch.call_inputs import BatchShape, PagedInputs
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.paged_call import PagedCall
from cosyvoice_runtime.flow.torch.pages import PagePool
from cosyvoice_runtime.flow.voice_flow import TokenSpan
from cosyvoice_runtime.gpu.kernels.step_tiles import ONE
from cosyvoice_runtime.gpu.kernels.tiles import Tile
from cosyvoice_runtime.lm.kernels.fused_step import FusedStep
from cosyvoice_runtime.lm.torch.kv_cache import KVCache
from cosyvoice_runtime.lm.torch.network import SpeechLM
from making import architecture, architecture_cosyvoice3
from making.random_tensors import random_tensors
from wide_range import error, loud_dit, made_prompt, wide_dit, wide_lm

LAYER = Tile(128, 32, 32)
TILES = DiTTiles(
    norm=Tile(128, 0), enter=LAYER, conv=Tile(128, 0), qkv=LAYER, out=LAYER, widen=LAYER, narrow=LAYER,
    leave=Tile(64, 32, 32),
)  # fmt: skip
TINY = architecture_cosyvoice3.TINY
ONE_BLOCK = replace(TINY, flow=replace(TINY.flow, estimator=replace(TINY.flow.estimator, depth=1)))
BEYOND_FLOAT16 = 2.0**20
MAX_LEN = 16


def mel(config: ModelConfig, tensors: dict[str, torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """Mel of a block: by the kernels in float16, otherwise by the modules."""
    flow = Flow.from_tensors(config.flow, tensors, dtype=dtype, num_steps=1)
    span = TokenSpan(made_prompt(config.flow, 10), 0, 25, np.arange(28))
    pool = PagePool(flow, 1)
    call = PagedCall(flow, pool, PagedInputs(flow, BatchShape.of([span], 25), [span], [pool.acquire(1)]))
    if dtype == torch.float16:
        started = call.start(masked=False)
        fused_solver(flow).solve(call.mel, started.conditions, call.solver_places(started), tiles=TILES)
    else:
        call.run()
    return call.mel


@pytest.mark.parametrize("change", [wide_dit, loud_dit])
@torch.inference_mode()
def test_cosyvoice3_may_leave_the_range_of_float16(change):
    tensors = change(dict(random_tensors("flow", ONE_BLOCK, seed=1)), BEYOND_FLOAT16, depth=1)
    expected = mel(ONE_BLOCK, tensors, torch.float64)
    assert error(mel(ONE_BLOCK, tensors, torch.float16), expected) < 0.002


@torch.inference_mode()
def test_speech_lm_with_large_channels_in_half_precision():
    config = architecture.TINY.speech_lm
    tensors = wide_lm(dict(random_tensors("llm", architecture.TINY, seed=1)), 1e4, config.num_layers)
    half, full = (
        SpeechLM.from_tensors(config, tensors, dtype=each) for each in (torch.float16, torch.float64)
    )
    caches = {lm: KVCache(config, 1, MAX_LEN, dtype=lm.dtype) for lm in (half, full)}
    token, place = torch.tensor([7]), torch.tensor([0])
    tiles = replace(ONE, keys=16)
    found = FusedStep(half, MAX_LEN)(token, place, caches[half].view(0, 1), MAX_LEN, tiles)
    assert error(found, full.decode_step(token, place, caches[full].view(0, 1), MAX_LEN)) < 0.004
