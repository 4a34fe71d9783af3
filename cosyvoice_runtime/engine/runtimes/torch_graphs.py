"""Token2wav on torch, and its calls that a GPU replays: captured once, with fused kernels where they run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple

import torch

from cosyvoice_runtime.engine.runtimes.runtime import URGENT_BLOCKS, ConcurrentNetworks
from cosyvoice_runtime.flow.kernels.choice import encoder_obstacle, solver_obstacle
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.graphed_calls import CallBuckets
from cosyvoice_runtime.flow.torch.paged_call import PagedSolver
from cosyvoice_runtime.flow.torch.stream import FlowStream
from cosyvoice_runtime.gpu.buckets import batch_buckets
from cosyvoice_runtime.gpu.cuda_graphs import CudaGraphCapture, GraphCapture, PacedCapture
from cosyvoice_runtime.gpu.kernels.ahead import wait_until_compiled
from cosyvoice_runtime.gpu.kernels.choice import fused_chosen, machine_obstacle
from cosyvoice_runtime.gpu.partitions.partition import GpuPart, GpuParts
from cosyvoice_runtime.gpu.partitions.shared_gpu import Later
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.metrics.progress import StartProgress
from cosyvoice_runtime.settings import Token2WavSettings
from cosyvoice_runtime.token2wav.token2wav import Token2Wav
from cosyvoice_runtime.vocoder.geometry import context
from cosyvoice_runtime.vocoder.torch import HiFT, HiFTStream

logger = logging.getLogger(__name__)


def as_current(device: torch.device) -> AbstractContextManager[object]:
    """A context in which a GPU is the calling thread's current one.

    Streams, graphs and TensorRT work on the thread's current GPU, which is the first one unless it is set.
    """
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def on_own_stream(
    device: torch.device, stream: torch.cuda.Stream | None = None
) -> AbstractContextManager[object]:
    """A context in which a GPU's work goes into a stream of the calling thread, new or given.

    Threads that share a stream wait for each other. Work that other threads launched before must have
    ended.
    """
    if device.type != "cuda":
        return nullcontext()
    return torch.cuda.stream(torch.cuda.Stream(device) if stream is None else stream)


class TorchToken2Wav(Token2Wav):
    """Flow and vocoder on torch."""

    def __init__(self, flow: FlowStream, vocoder: HiFTStream, lookahead_frames: int | None = None) -> None:
        super().__init__(flow, vocoder, lookahead_frames)
        self.torch_flow, self.torch_vocoder = flow, vocoder

    def beside(self, second: torch.cuda.Stream | None = None) -> TorchToken2Wav:
        """The same networks and pages in another stream, with captured calls of their own.

        Args:
            second: stream of the vocoder, which then runs at the same time as the flow.
        """
        vocoder = HiFTStream(self.torch_vocoder.hift, own_stream=second)
        return TorchToken2Wav(self.torch_flow.fork(), vocoder, self.lookahead_frames)

    def capture(
        self,
        buckets: CallBuckets,
        capture: GraphCapture,
        fused: PagedSolver | None = None,
        of_vocoder: GraphCapture | None = None,
    ) -> int:
        """Capture chunks of these sizes, before anything is opened; returns the number of captured calls.

        Args:
            fused: takes the place of the flow's steps.
            of_vocoder: where the vocoder runs on another device than the flow, or in a stream of its own.
        """
        calls = self.torch_flow.capture(buckets, capture, fused)
        frames = self.window_frames(buckets)
        return calls + self.torch_vocoder.capture(buckets.rows, frames, of_vocoder or capture)

    def window_frames(self, buckets: CallBuckets) -> list[int]:
        """Frames of the vocoder's windows for calls of these sizes."""
        config, around = self.torch_flow.flow.config, context(self.vocoder.config)
        block = config.frames_per_token * config.encoder.chunk_tokens
        return [around.left + block * blocks + around.lookahead for blocks in buckets.blocks]


def capture_graphs(
    token2wav: TorchToken2Wav, settings: Token2WavSettings, rows: int, part: GpuPart | None = None
) -> PagedSolver | None:
    """Capture what a GPU repeats, if the settings say so; on a partition of the GPU, if one is given.

    Returns:
        the fused solver of the captured steps; None where the plain modules take them.
    """
    if not settings.cuda_graphs:
        logger.info("backend torch: every kernel is launched")
        return None
    wait_until_compiled()
    started = time.monotonic()
    flow, vocoder = token2wav.torch_flow.flow, token2wav.torch_vocoder
    of_flow = CudaGraphCapture(flow.device, None if part is None else part.stream)
    apart = vocoder.own_stream is not None or vocoder.device != flow.device
    of_vocoder = CudaGraphCapture(vocoder.device, vocoder.own_stream) if apart else of_flow
    fused = _fused_solver(flow, settings)
    if fused is not None and part is not None:
        fused = fused.on(part.multiprocessors)
    if fused is not None:
        _fuse_encoder(flow, settings)
    buckets = call_buckets(flow, rows, fused)
    _fuse_decoder(vocoder.hift, settings)
    told = StartProgress(Metrics(settings.name), "captured", "calls", graphs_of(buckets, fused))
    calls = token2wav.capture(buckets, PacedCapture(of_flow, told), fused, PacedCapture(of_vocoder, told))
    logger.info("backend torch: CUDA graphs of %d calls in %.1f s", calls, time.monotonic() - started)
    return fused


def call_buckets(flow: Flow, rows: int, solver: PagedSolver | None) -> CallBuckets:
    """Sizes of calls for any batch; few are captured where padding costs nothing."""
    return CallBuckets.up_to(rows, any_past=solver is not None, starts_too=flow.encodes_any_past)


def graphs_of(buckets: CallBuckets, solver: PagedSolver | None) -> int:
    """The number of graphs of calls of these sizes: of the flow, in two parts, and of the vocoder."""
    sizes = len(buckets.rows) * len(buckets.blocks)
    starts = sizes * len(buckets.before)
    return starts + (starts if solver is None else sizes) + sizes


URGENT_ROWS = 4
"""Most urgent chunks in a batch of their own; further ones wait no longer than for a batch."""


def urgent_buckets(buckets: CallBuckets) -> CallBuckets:
    """Sizes of calls for urgent chunks, beside those for any batch."""
    return CallBuckets(batch_buckets(URGENT_ROWS), range(1, URGENT_BLOCKS + 1), buckets.before)


class PartitionNetworks(NamedTuple):
    """Networks on a partition of the GPU, whose calls are not captured yet."""

    token2wav: TorchToken2Wav
    part: GpuPart
    buckets: CallBuckets
    urgent: bool = False

    def capture(self, solver: PagedSolver | None, rest: Callable[[], None] | None = None) -> None:
        """Capture the calls of each bucket; ``rest`` runs after each graph where others compute meanwhile."""
        device, part = self.token2wav.torch_flow.flow.device, self.part
        of_flow, of_vocoder = (
            PacedCapture(CudaGraphCapture(device, stream, alone=rest is None), rest or _no_rest)
            for stream in (part.stream, part.second)
        )
        fused = None if solver is None else solver.on(part.multiprocessors)
        self.token2wav.capture(self.buckets, of_flow, fused, of_vocoder)

    def concurrent(self, of_few: bool | None) -> ConcurrentNetworks:
        at_launch = partial(torch.cuda.stream, self.part.stream)
        return ConcurrentNetworks(self.token2wav, self.buckets.rows[-1], at_launch, self.urgent, of_few)


def _no_rest() -> None:
    """Do nothing: no other thread computes meanwhile."""


def concurrent_networks(
    token2wav: TorchToken2Wav,
    settings: Token2WavSettings,
    rows: int,
    parts: GpuParts,
    solver: PagedSolver | None,
) -> tuple[list[ConcurrentNetworks], Later | None]:
    """Networks on the other partitions of a GPU, those for urgent chunks on that for steps; by division.

    Args:
        rows: most utterances in a batch.
        solver: that :func:`capture_graphs` returned.

    Returns:
        all of it, and what captures the calls of the division for few utterances in progress: those of the
        other one will do until it has.
    """
    if not settings.cuda_graphs:
        logger.info("urgent chunks wait for batches: cuda_graphs=false")
        return [], None
    started = time.monotonic()
    buckets = call_buckets(token2wav.torch_flow.flow, rows, solver)
    urgent = urgent_buckets(buckets)

    def urgent_networks(parts: GpuParts) -> list[PartitionNetworks]:
        first = parts.first if settings.first_chunks_beside else ()
        return [PartitionNetworks(token2wav.beside(part.second), part, urgent, urgent=True) for part in first]

    few = parts.of_few
    of_many, of_few = urgent_networks(parts), []
    if few is not None:
        turns = PartitionNetworks(token2wav.beside(few.turns.second), few.turns, buckets)
        of_few = [turns, *urgent_networks(few)]
    for networks in of_many:
        networks.capture(solver)
    logger.info(
        "urgent chunks %s; %s; captured in %.1f s",
        "are computed at the same time as batches"
        if settings.first_chunks_beside
        else "wait for batches, as first_chunks_beside says",
        "one division of the GPU" if few is None else "the same for few utterances, during service",
        time.monotonic() - started,
    )
    concurrent = [networks.concurrent(None if few is None else False) for networks in of_many]
    concurrent += [networks.concurrent(of_few=True) for networks in of_few]
    return concurrent, partial(_capture_later, of_few, solver) if of_few else None


def _capture_later(
    unused: Sequence[PartitionNetworks], solver: PagedSolver | None, rest: Callable[[], None]
) -> None:
    """Capture networks that are not used yet, in a thread of its own while other threads compute."""
    started = time.monotonic()
    device = unused[0].token2wav.torch_flow.flow.device
    with as_current(device), on_own_stream(device):
        for networks in unused:
            networks.capture(solver, rest)
        torch.cuda.current_stream(device).synchronize()
    logger.info("few utterances in progress: captured during service in %.1f s", time.monotonic() - started)


def _fused_solver(flow: Flow, settings: Token2WavSettings) -> PagedSolver | None:
    """The fused solver; None where the plain modules take the steps."""
    obstacle = solver_obstacle(flow.device, flow.dtype, flow.config.blockwise)
    if not fused_chosen(settings.kernels, "the flow's steps", flow.device, obstacle):
        return None
    # The module defines Triton kernels, which need the CUDA build of torch.
    from cosyvoice_runtime.flow.kernels.choice import fused_solver

    return fused_solver(flow)


def _fuse_encoder(flow: Flow, settings: Token2WavSettings) -> None:
    """Let a fused kernel attend in the encoder, where it can and the settings say so."""
    if flow.encodes_any_past:
        return  # Such an encoder has no attention.
    config = flow.config.conformer
    obstacle = encoder_obstacle(flow.device, flow.dtype, config)
    if not fused_chosen(settings.kernels, "attention of the flow's encoder", flow.device, obstacle):
        return
    # The module defines Triton kernels, which need the CUDA build of torch.
    from cosyvoice_runtime.flow.kernels.fused_encoder import fused_encoder

    flow.paged_encoder = fused_encoder(flow)


def _fuse_decoder(vocoder: HiFT, settings: Token2WavSettings) -> None:
    """Let fused kernels compute the decoder, where they can and the settings say so."""
    obstacle = machine_obstacle(vocoder.device, getattr(torch, settings.dtype), torch.float16)
    if not fused_chosen(settings.kernels, "the vocoder's decoder", vocoder.device, obstacle):
        return
    # The module defines Triton kernels, which need the CUDA build of torch.
    from cosyvoice_runtime.vocoder.kernels.fused_decoder import FusedDecoder

    vocoder.fuse(FusedDecoder(vocoder.decoder))
