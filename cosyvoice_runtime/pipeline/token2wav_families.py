"""From tokens to waveform, as the networks of each family can."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.config import FlowConfig, ModelConfig
from cosyvoice_runtime.checkpoint.config_cosyvoice300m import RegulatedFlowConfig
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.flow.estimator import NUM_STEPS
from cosyvoice_runtime.flow.flow import Flow
from cosyvoice_runtime.flow.regulated_flow import RegulatedFlow
from cosyvoice_runtime.flow.stream import FlowStream
from cosyvoice_runtime.pipeline.chunked_token2wav import ChunkedToken2Wav
from cosyvoice_runtime.vocoder import HiFT, HiFTStream
from cosyvoice_runtime.wave.token2wav import Token2Wav

AnyToken2Wav = Token2Wav | ChunkedToken2Wav
Device = torch.device | str
FLOW_PAGES = 64
"""Chunks of 1 s kept for incremental flow: prompt and speech of one utterance up to a minute."""


class Precision(NamedTuple):
    """Types of the networks."""

    flow: torch.dtype
    vocoder: torch.dtype


def load_token2wav(
    layout: Layout,
    config: ModelConfig,
    device: Device,
    precision: Precision,
    ode_steps: int = NUM_STEPS,
    lookahead_frames: int | None = None,
) -> AnyToken2Wav:
    """Flow and vocoder of a checkpoint.

    Args:
        ode_steps: Euler steps of the flow.
        lookahead_frames: mel frames the vocoder waits for; None is its default.

    Raises:
        CheckpointError: a file is missing or damaged.
        InvalidInput: ``lookahead_frames`` where the vocoder waits for none.
    """
    tensors = load_tensors(layout, "hift", config)
    vocoder = HiFT.from_tensors(config.vocoder, tensors, device, precision.vocoder)
    load = _LOADERS[type(config.flow)]
    return load(layout, config, device, precision.flow, ode_steps, vocoder, lookahead_frames)


def _streamed(
    layout: Layout,
    config: ModelConfig,
    device: Device,
    dtype: torch.dtype,
    steps: int,
    vocoder: HiFT,
    lookahead_frames: int | None,
) -> AnyToken2Wav:
    tensors = load_tensors(layout, "flow", config)
    flow = Flow.from_tensors(config.flow, tensors, device, dtype, steps)
    return Token2Wav(FlowStream(flow, FLOW_PAGES), HiFTStream(vocoder), lookahead_frames)


def _chunked(
    layout: Layout,
    config: ModelConfig,
    device: Device,
    dtype: torch.dtype,
    steps: int,
    vocoder: HiFT,
    lookahead_frames: int | None,
) -> AnyToken2Wav:
    if lookahead_frames is not None:
        limit = "this checkpoint's vocoder has a schedule of its own"
        raise InvalidInput("lookahead_frames", lookahead_frames, limit)
    flow, tensors = config.regulated_flow, load_tensors(layout, "flow", config)
    return ChunkedToken2Wav(RegulatedFlow.from_tensors(flow, tensors, device, dtype, steps), vocoder)


_LOADERS: dict[type, Callable[..., AnyToken2Wav]] = {
    FlowConfig: _streamed,
    RegulatedFlowConfig: _chunked,
}
