"""All launches that a server captures, made by its own code over tensors without memory."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from cosyvoice_runtime.checkpoint.config_flow import EncoderConfig, FlowConfig
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.checkpoint.schema import part_schema
from cosyvoice_runtime.checkpoint.voice_adapters import VoiceAdapters
from cosyvoice_runtime.compilation.deployment import Deployment
from cosyvoice_runtime.compilation.forms import META, Form, collecting
from cosyvoice_runtime.engine.batches.load import SHARE_OF_FEW
from cosyvoice_runtime.engine.runtimes.torch_graphs import TorchToken2Wav, call_buckets, urgent_buckets
from cosyvoice_runtime.flow.kernels.choice import estimator_obstacle, fused_solver
from cosyvoice_runtime.flow.kernels.fused_encoder import fused_encoder
from cosyvoice_runtime.flow.torch.call_inputs import PagedInputs
from cosyvoice_runtime.flow.torch.flow import Flow, FlowNetwork
from cosyvoice_runtime.flow.torch.graphed_calls import CallBuckets, FusedSteps
from cosyvoice_runtime.flow.torch.paged_call import PagedCall, PagedSolver, SolverTails
from cosyvoice_runtime.flow.torch.stream import FlowStream
from cosyvoice_runtime.gpu.cuda_graphs import CapturedGraph
from cosyvoice_runtime.gpu.kernels.rows import GpuRow, read_row, row_of
from cosyvoice_runtime.gpu.partitions.partition import steps_part
from cosyvoice_runtime.lm.engines.engine import shared_pool
from cosyvoice_runtime.lm.engines.torch import GPU_PREFILL_BATCH, network_obstacle
from cosyvoice_runtime.lm.kernels.fused_step import FusedStep
from cosyvoice_runtime.lm.kernels.prefill import FusedPrefill
from cosyvoice_runtime.lm.kernels.slot_draw import chained_slot_draw, slot_draw
from cosyvoice_runtime.lm.kernels.text_rows import text_rows
from cosyvoice_runtime.lm.torch.adapters import stack_adapters
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
from cosyvoice_runtime.lm.torch.device_steps import CapturedPasses
from cosyvoice_runtime.lm.torch.kv_cache import CacheView
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.settings.token2wav import EIGHT_BIT_PAGES
from cosyvoice_runtime.vocoder.kernels.fused_decoder import FusedDecoder
from cosyvoice_runtime.vocoder.torch import HiFT, HiFTStream

T = TypeVar("T")

PAGES = 256
"""Pages of the flow; their number changes no kernel."""
ANY_HEAD = (0, 0)
"""Layer and head that is followed; which ones are, and how many, changes no kernel. Where none is, one kernel
too many is compiled."""
LAYERS = 3
"""Layers of each stack of the flow's encoder: the kernel of attention is compiled apart for the layers 0 and
1, and then for all others."""


def row_for(deployment: Deployment) -> GpuRow:
    """The row of a deployment's GPU, or the one in its settings' file."""
    if deployment.wave.kernels_file != "none":
        return read_row(Path(deployment.wave.kernels_file))
    return row_of(deployment.gpu.capability, deployment.gpu.shared_bytes)


def find_forms(
    deployment: Deployment, found: Callable[[Form], None], found_lm: Callable[[], object] = lambda: None
) -> None:
    """Give ``found`` the forms of all kernels, one by one: those that are captured first come first.

    Call :func:`~cosyvoice_runtime.compilation.forms.compile_for` before.

    Args:
        found_lm: called when all of the speech LM have been found.
    """
    with torch.inference_mode(), collecting(found):
        capture_speech_lm(deployment)
        found_lm()
        capture_token2wav(deployment)


def _compute(compute: Callable[[], T], warm_up: Callable[[], object] | None = None) -> CapturedGraph[Any]:
    """Stand in for the capture of a graph: compute once."""
    return CapturedGraph(_replay_nothing, (warm_up or compute)(), compute)


def _replay_nothing() -> None:
    """Stand in for a graph's replay."""


class BothDivisions:
    """A step that is computed twice, with the tiles of a whole GPU and of a partition."""

    def __init__(self, step: FusedStep, row: GpuRow) -> None:
        self._step, self._row = step, row

    def __call__(self, tokens: Tensor, positions: Tensor, cache: CacheView, span: int) -> Tensor:
        for on_part in (False, True):
            logits = self._step(tokens, positions, cache, span, self._row.step_tiles(len(tokens), on_part))
        return logits

    def division(self, batch: int, span: int) -> Hashable:
        return self._step.division(batch, span)


def capture_speech_lm(deployment: Deployment) -> None:
    """Make the launches of the speech LM: steps, prompts and draws."""
    settings, config, row = deployment.lm, deployment.config.speech_lm, row_for(deployment)
    fuses = settings.engine == "torch" and settings.cuda_graphs and settings.kernels != "plain"
    if not fuses or settings.dtype != "bfloat16" or network_obstacle(config) is not None:
        return
    lm = bare_speech_lm(config)
    if deployment.adapters.modules:
        stack_adapters(lm, VoiceAdapters(("any",), deployment.adapters, ({},)))
    length = settings.max_sequence_tokens
    passes = CapturedPasses(
        BothDivisions(FusedStep(lm, length, row=row), row),
        FusedPrefill(lm, length),
        slot_draw,
        chained_slot_draw if row.chained else slot_draw,
        text_rows,
    )
    pool = shared_pool(settings, steps_read_pages=True)
    BatchDecoder(lm, settings.max_slots, length, _compute, GPU_PREFILL_BATCH, passes, pool, [ANY_HEAD])


def capture_token2wav(deployment: Deployment) -> None:
    """Make the launches of token2wav on each partition of the GPU."""
    settings, config, row = deployment.wave, deployment.config, row_for(deployment)
    if not settings.may_fuse or settings.dtype != "float16" or type(config.flow) is not FlowConfig:
        return
    token2wav = _token2wav(deployment)
    flow = token2wav.torch_flow.flow
    solver = None
    if estimator_obstacle(config.flow.blockwise) is None:
        solver = fused_solver(flow, row)
        if not flow.encodes_any_past:
            flow.paged_encoder = fused_encoder(flow)
    buckets = call_buckets(flow, deployment.rows, solver)
    # Kernels are the same whatever a call looks back on.
    buckets = dataclasses.replace(buckets, before=buckets.before[-1:])
    token2wav.torch_vocoder.capture(buckets.rows, token2wav.window_frames(buckets), _compute)
    if solver is None:
        return
    for shape in buckets.shapes(flow.config.encoder.chunk_tokens):
        PagedCall(flow, token2wav.torch_flow.pool, PagedInputs(flow, shape)).start(masked=False)
    for steps, turns in set(_partitions(deployment)):
        for sizes, multiprocessors in ((buckets, turns), (urgent_buckets(buckets), steps)):
            _capture_steps(token2wav, sizes, solver.on(multiprocessors))


def _capture_steps(token2wav: TorchToken2Wav, sizes: CallBuckets, solver: PagedSolver) -> None:
    """Make the launches of the flow's steps alone, which depend on the multiprocessors."""
    flow, pool = steps_alone(token2wav.torch_flow.flow), token2wav.torch_flow.pool
    for shape in sizes.shapes(flow.config.encoder.chunk_tokens):
        FusedSteps(flow, pool, shape, SolverTails.of(pool, shape.rows), _compute, solver)


def steps_alone(flow: Flow) -> Flow:
    """A copy of a flow with a stand-in for its encoder."""
    flow = copy.copy(flow)
    flow.encode = partial(_encoded, flow)  # type: ignore[method-assign]
    return flow


def _encoded(flow: Flow, tokens: Tensor, *_: object) -> Tensor:
    """Stand in for the encoder."""
    frames = flow.config.frames_per_token * (tokens.shape[1] - flow.config.lookahead_tokens)
    return torch.empty(len(tokens), frames, flow.config.mel_bins, dtype=flow.dtype, device=flow.device)


def _partitions(deployment: Deployment) -> Iterator[tuple[int, int]]:
    """Multiprocessors for steps and for batches in each division of the GPU; of a whole GPU both are all."""
    whole, share = deployment.gpu.multiprocessors, deployment.lm.gpu_share
    if not share:
        yield whole, whole
        return
    for each in (share, max(share, SHARE_OF_FEW)):
        steps = steps_part(whole, each, deployment.gpu.capability[0])
        yield steps, whole - steps


def _token2wav(deployment: Deployment) -> TorchToken2Wav:
    """The networks without memory."""
    settings, config = deployment.wave, deployment.config
    flow = bare_flow(config.flow, settings.num_steps, settings.solver)
    flow.codes_pages = settings.page_format == EIGHT_BIT_PAGES
    tensors = {name: torch.ones(size) for name, size in part_schema("hift", config).items()}
    hift = HiFT.from_tensors(config.vocoder, tensors, META, torch.float16)
    hift.fuse(FusedDecoder(hift.decoder, row_for(deployment)))
    return TorchToken2Wav(FlowStream(flow, PAGES), HiFTStream(hift), settings.lookahead)


def bare_speech_lm(config: SpeechLMConfig) -> SpeechLM:
    """A speech LM without memory, which has one layer: its kernels are the same for all."""
    with torch.device(META):
        lm = SpeechLM(dataclasses.replace(config, num_layers=1))
        return lm.eval().requires_grad_(False).to(torch.bfloat16)


def bare_flow(config: FlowConfig, num_steps: int | None, solver: str) -> Flow:
    """A flow without memory, whose encoder has fewer layers."""
    shallow = _shallow(config)
    with torch.device(META):
        network = FlowNetwork(shallow).eval().requires_grad_(False).to(torch.float16)
    return Flow(shallow, network, num_steps, solver)


def _shallow(config: FlowConfig) -> FlowConfig:
    """The flow with fewer layers in its encoder, which torch computes but for their attention."""
    encoder = config.encoder
    if not isinstance(encoder, EncoderConfig):
        return config
    layers, up = min(encoder.num_layers, LAYERS), min(encoder.num_up_layers, LAYERS)
    return dataclasses.replace(
        config, encoder=dataclasses.replace(encoder, num_layers=layers, num_up_layers=up)
    )
