"""Flow and vocoder of a checkpoint, loaded as its family needs."""

from __future__ import annotations

import torch

from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families import flow_parts, load
from cosyvoice_runtime.flow.page_store import FLOW_PAGES
from cosyvoice_runtime.flow.solvers import EULER
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.stream import FlowStream
from cosyvoice_runtime.token2wav.chunked_token2wav import ChunkedToken2Wav, Precision
from cosyvoice_runtime.token2wav.token2wav import AnyToken2Wav, Token2Wav
from cosyvoice_runtime.vocoder.torch import HiFT, HiFTStream

Device = torch.device | str


def load_token2wav(
    layout: Layout,
    config: ModelConfig,
    device: Device,
    precision: Precision,
    ode_steps: int | None = None,
    lookahead_frames: int | None = None,
    solver: str = EULER,
    pages: int = FLOW_PAGES,
) -> AnyToken2Wav:
    """Flow and vocoder of a checkpoint.

    Args:
        ode_steps: of the flow; None is the number of its own times, or the published one.
        solver: of the flow, one of :data:`~cosyvoice_runtime.flow.solvers.SOLVERS`.
        lookahead_frames: mel frames the vocoder waits for; None is its default.
        pages: of finished chunks, where the flow has some; without one each call begins with the prompt.

    Raises:
        CheckpointError: a file is missing or damaged.
        InvalidInput: ``lookahead_frames`` where the vocoder waits for none, or other ``ode_steps`` than the
            flow has times.
    """
    place = flow_parts(config.flow.estimator).token2wav
    loaded: AnyToken2Wav = load(place)(
        layout, config, device, precision, ode_steps, lookahead_frames, solver, pages
    )
    return loaded


def load_streamed(
    layout: Layout,
    config: ModelConfig,
    device: Device,
    precision: Precision,
    steps: int | None,
    lookahead_frames: int | None,
    solver: str,
    pages: int,
) -> AnyToken2Wav:
    """A flow in blocks, with as many frames a token everywhere."""
    tensors = load_tensors(layout, "flow", config)
    flow = Flow.from_tensors(config.flow, tensors, device, precision.flow, steps, solver=solver)
    tensors = load_tensors(layout, "hift", config)
    vocoder = HiFT.from_tensors(config.vocoder, tensors, device, precision.vocoder)
    return Token2Wav(FlowStream(flow, pages), HiFTStream(vocoder), lookahead_frames)


def load_chunked(
    layout: Layout,
    config: ModelConfig,
    device: Device,
    precision: Precision,
    steps: int | None,
    lookahead_frames: int | None,
    solver: str,
    pages: int,  # noqa: ARG001
) -> AnyToken2Wav:
    """A flow whose chunks are wholes."""
    require_own_schedule("lookahead_frames", lookahead_frames)
    return ChunkedToken2Wav.from_checkpoint(layout, config, device, precision, steps, solver)


def require_own_schedule(field: str, lookahead: int | None) -> None:
    """Raise InvalidInput for a look-ahead of the vocoder, as these chunks have none."""
    if lookahead is not None:
        raise InvalidInput(field, lookahead, "exact: this checkpoint's chunks have a schedule of their own")
