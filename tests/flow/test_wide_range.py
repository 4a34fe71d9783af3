"""Flows whose numbers reach far, as those of trained ones do, in half precision against float64."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from cosyvoice_runtime.arrays import as_arrays
from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.flow.norm_range import norms_in_range
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.stream import FlowStream
from cosyvoice_runtime.flow.weights import dit_weights
from making import architecture, architecture_cosyvoice3
from making.random_tensors import random_tensors
from small_flow import random_tokens
from wide_range import error, loud_dit, made_prompt, wide_dit, wide_unet

COSYVOICE2, COSYVOICE3 = architecture.TINY, architecture_cosyvoice3.TINY
TOKENS = random_tokens(55, 1)
HALF = pytest.mark.parametrize(("dtype", "most"), [(torch.bfloat16, 0.012), (torch.float16, 0.004)])
BEYOND_FLOAT16 = 2.0**20


@pytest.fixture(scope="module")
def dit() -> dict[str, Tensor]:
    return dict(random_tensors("flow", COSYVOICE3, seed=1))


def mel(config: FlowConfig, tensors: Mapping[str, Tensor], dtype: torch.dtype, codes: bool = False) -> Tensor:
    """Mel of some speech after a prompt, from pages."""
    flow = Flow.from_tensors(config, tensors, dtype=dtype, num_steps=3)
    flow.codes_pages = codes
    stream = FlowStream(flow, num_pages=8)
    state = stream.open(made_prompt(config, 30))
    state.push(TOKENS, last=True)
    [given] = stream.advance([state])
    return given


@HALF
@pytest.mark.parametrize("codes", [False, True], ids=["pages", "pages in 8 bits"])
def test_residual_of_cosyvoice3_may_leave_the_range_of_float16(dit, dtype, most, codes):
    tensors = wide_dit(dit, BEYOND_FLOAT16, depth=3)
    expected = mel(COSYVOICE3.flow, tensors, torch.float64)
    assert error(mel(COSYVOICE3.flow, tensors, dtype, codes), expected) < most + 0.01 * codes


@HALF
def test_norms_of_cosyvoice3_may_leave_the_range_of_float16(dit, dtype, most):
    tensors = loud_dit(dit, BEYOND_FLOAT16, depth=3)
    expected = mel(COSYVOICE3.flow, dit, torch.float64)
    assert error(mel(COSYVOICE3.flow, tensors, torch.float64), expected) < 1e-6
    assert error(mel(COSYVOICE3.flow, tensors, dtype), expected) < most


def test_norms_within_the_range_stay_as_they_are(dit):
    tensors = as_arrays({name: tensor for name, tensor in dit.items() if "inv_freq" not in name})
    weights = dit_weights(tensors)
    again = norms_in_range(weights)
    assert all(again[name] is weights[name] for name in weights)
    [name] = (name for name in weights if name.endswith("time.blocks.0.weight"))
    published = "decoder.estimator.transformer_blocks.0.attn_norm.linear.weight"
    assert np.array_equal(weights[name], tensors[published])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_residual_of_cosyvoice2_may_reach_half_the_range_of_float16(dtype):
    tensors = wide_unet(dict(random_tensors("flow", COSYVOICE2, seed=1)), 2.0**15, mids=2)
    expected = mel(COSYVOICE2.flow, tensors, torch.float64)
    assert error(mel(COSYVOICE2.flow, tensors, dtype), expected) < 0.012
