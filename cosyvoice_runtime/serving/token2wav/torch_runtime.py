"""token2wav on torch: its modules, or TensorRT engines in their place."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch

from cosyvoice_runtime.buckets import batch_buckets
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.config import FlowConfig, ModelConfig
from cosyvoice_runtime.checkpoint.config_cosyvoice300m import RegulatedFlowConfig
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.cuda_graphs import CudaGraphCapture, EagerCalls, GraphCapture, PacedCapture, give_back
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.flow.flow import Flow
from cosyvoice_runtime.flow.graphed_calls import CallBuckets
from cosyvoice_runtime.flow.paged_call import PagedSolver
from cosyvoice_runtime.flow.pages import PagePool
from cosyvoice_runtime.flow.stream import FlowStream
from cosyvoice_runtime.gpu_parts import GpuPart, GpuParts
from cosyvoice_runtime.kernels.choice import (
    decoder_obstacle,
    encoder_obstacle,
    fused_chosen,
    solver_obstacle,
)
from cosyvoice_runtime.pipeline.chunked_token2wav import ChunkedToken2Wav, Devices, Precision
from cosyvoice_runtime.pipeline.token2wav_families import require_own_schedule
from cosyvoice_runtime.serving.shared_gpu import Later
from cosyvoice_runtime.serving.token2wav.device import as_current, on_own_stream
from cosyvoice_runtime.serving.token2wav.memory import page_count
from cosyvoice_runtime.serving.token2wav.runtime import TurnsBeside, WaveRuntime, warm_up
from cosyvoice_runtime.serving.token2wav.torch_memory import room, turn_rows, work_bytes
from cosyvoice_runtime.serving.token2wav.turn import HURRIED_BLOCKS
from cosyvoice_runtime.settings import Token2WavSettings
from cosyvoice_runtime.settings.token2wav import EIGHT_BIT_PAGES
from cosyvoice_runtime.unplanned_attention import attend_unplanned
from cosyvoice_runtime.vocoder import HiFT, HiFTStream
from cosyvoice_runtime.wave.any_token2wav import AnyToken2Wav
from cosyvoice_runtime.wave.context import context
from cosyvoice_runtime.wave.token2wav import Token2Wav

if TYPE_CHECKING:
    from cosyvoice_runtime.compiled.token2wav_engines import Token2WavEngines

logger = logging.getLogger(__name__)


class TorchToken2Wav(Token2Wav):
    """Both parts on torch; names them as such."""

    def __init__(self, flow: FlowStream, vocoder: HiFTStream, lookahead_frames: int | None = None) -> None:
        super().__init__(flow, vocoder, lookahead_frames)
        self.torch_flow, self.torch_vocoder = flow, vocoder

    def beside(self, second: torch.cuda.Stream | None = None) -> TorchToken2Wav:
        """The same networks and pages for utterances in another stream, to be captured by themselves.

        Args:
            second: for the vocoder, beside what the flow does next.
        """
        vocoder = HiFTStream(self.torch_vocoder.hift, own_stream=second)
        return TorchToken2Wav(self.torch_flow.beside(), vocoder, self.lookahead_frames)

    def capture(
        self,
        buckets: CallBuckets,
        capture: GraphCapture,
        fused: PagedSolver | None = None,
        of_vocoder: GraphCapture | None = None,
    ) -> int:
        """Replay chunks of these sizes from now on; to be called before anything is opened.

        Args:
            fused: takes the place of the flow's steps.
            of_vocoder: where the vocoder runs on another device than the flow, or in a stream of its own.

        Returns:
            the number of captured calls.
        """
        config, around = self.torch_flow.flow.config, context(self.vocoder.config)
        block = config.frames_per_token * config.encoder.chunk_tokens
        frames = [around.left + block * blocks + around.lookahead for blocks in buckets.blocks]
        calls = self.torch_flow.capture(buckets, capture, fused)
        return calls + self.torch_vocoder.capture(buckets.rows, frames, of_vocoder or capture)


class Opened(NamedTuple):
    """Networks on a device.

    Attributes:
        rows: most utterances in a turn.
        turns_at_once: turns that may be under way.
        beside: for turns at the same time, or instead while few utterances are in progress.
        later: makes the latter ready.
    """

    token2wav: AnyToken2Wav
    rows: int
    device: torch.device
    turns_at_once: int
    beside: Sequence[TurnsBeside] = ()
    later: Later | None = None


def open_runtime(settings: Token2WavSettings, parts: GpuParts | None = None) -> WaveRuntime:
    """The networks on the one device of the settings, ready to be fast.

    Args:
        parts: of the device, which is a GPU, if turns have only theirs.
    """
    stream = None if parts is None else parts.turns[0].stream
    with as_current(torch.device(settings.device)):
        # Otherwise transposed convolutions may add in any order, and the same speech differ in its last bits.
        torch.backends.cudnn.deterministic = True
        attend_unplanned()
        config = load_config(settings.checkpoint_dir)
        opened = _OPENERS[type(config.flow)](settings, config, parts)
        token2wav, rows, device, turns_at_once, beside, later = opened
        on_gpu = device.type == "cuda"
        if on_gpu:
            give_back(device)  # what captures warmed up in
        of_few = None if all(turns.of_few is None for turns in beside) else False
        # Elsewhere the first batch costs little more than later ones, and a large one takes long.
        warm_up(token2wav, rows if on_gpu else 1)
        for turns in beside:
            if later is None or not turns.of_few:
                with turns.at_launch():
                    warm_up(turns.token2wav, turns.rows)
        if on_gpu:
            torch.cuda.synchronize(device)  # before other threads launch in streams of their own
    at_work = partial(on_own_stream, device, stream)
    return WaveRuntime(
        name=settings.backend,
        token2wav=token2wav,
        rows=rows,
        on_gpu=on_gpu,
        at_work=at_work,
        turns_at_once=turns_at_once,
        turns_overlap=isinstance(token2wav, TorchToken2Wav)
        and token2wav.torch_vocoder.own_stream is not None,
        of_few=of_few,
        beside=beside,
        later=later,
    )


def _open_paged(settings: Token2WavSettings, config: ModelConfig, parts: GpuParts | None) -> Opened:  # noqa: ARG001
    token2wav, parts = _load(settings, parts)
    flow = token2wav.torch_flow.flow
    rows = turn_rows(flow, settings, _lanes(parts))
    on_gpu = flow.device.type == "cuda"
    beside: list[TurnsBeside] = []
    later: Later | None = None
    if on_gpu and settings.backend == "torch":
        part = None if parts is None else parts.turns[0]
        solver = capture_graphs(token2wav, settings, rows, part)
        if parts is not None:
            beside, later = turns_beside(token2wav, settings, rows, parts, solver)
    return Opened(token2wav, rows, flow.device, _turns_at_once(settings, on_gpu), beside, later)


def _open_chunked(settings: Token2WavSettings, config: ModelConfig, parts: GpuParts | None) -> Opened:  # noqa: ARG001
    """Chunks are computed one after another: rows of a batch would be heard in each other's norms."""
    require_own_schedule("lookahead_frames", settings.lookahead)
    config.flow.waits_for(settings.flow_lookahead)
    if settings.page_format == EIGHT_BIT_PAGES:
        raise InvalidInput(
            "token2wav.page_format", settings.page_format, "auto: this checkpoint has no pages"
        )
    [vocoder_device] = settings.vocoder_devices
    dtype = getattr(torch, settings.dtype)
    token2wav = ChunkedToken2Wav.from_checkpoint(
        Layout(settings.checkpoint_dir),
        config,
        Devices(settings.device, vocoder_device),
        Precision(dtype, dtype),
        settings.ode_steps,
        settings.solver,
    )
    device = token2wav.regulated.device
    fused_chosen(settings.kernels, "flow and vocoder", device, "this checkpoint's chunks are wholes")
    logger.info("backend torch: whole chunks, one after another; every kernel is launched")
    return Opened(token2wav, 1, device, turns_at_once=1)


_OPENERS: dict[type, Callable[[Token2WavSettings, ModelConfig, GpuParts | None], Opened]] = {
    FlowConfig: _open_paged,
    RegulatedFlowConfig: _open_chunked,
}


def _turns_at_once(settings: Token2WavSettings, on_gpu: bool) -> int:
    """The next one is on the GPU before the last has ended; memory of engines is that of one call."""
    return 2 if on_gpu and settings.backend == "torch" else 1


def load_token2wav(settings: Token2WavSettings) -> TorchToken2Wav:
    """The networks on the one device of the settings, and pages."""
    token2wav, _ = _load(settings, None)
    return token2wav


def _load(settings: Token2WavSettings, parts: GpuParts | None) -> tuple[TorchToken2Wav, GpuParts | None]:
    """The same with the parts of the GPU that there is memory for."""
    layout, config = Layout(settings.checkpoint_dir), load_config(settings.checkpoint_dir)
    device, dtype = settings.device, getattr(torch, settings.dtype)
    eager = EagerCalls()
    engines = _open_engines(settings, config, eager)
    flow = Flow.from_tensors(
        config.flow, load_tensors(layout, "flow", config), device, dtype, settings.ode_steps, engines,
        settings.solver,
    )  # fmt: skip
    flow.wait_for(settings.flow_lookahead)
    flow.codes_pages = settings.page_format == EIGHT_BIT_PAGES
    decoder = None if engines is None else engines.decoding()
    [on] = settings.vocoder_devices
    vocoder = HiFT.from_tensors(config.vocoder, load_tensors(layout, "hift", config), on, dtype, decoder)
    if flow.device != vocoder.device:
        logger.info("flow on %s, vocoder on %s", flow.device, vocoder.device)
    pages, parts = _planned(flow, settings, parts)
    second: torch.cuda.Stream | None = None
    if parts is not None and settings.cuda_graphs and vocoder.device == flow.device:
        second = parts.turns[0].second
    wave = HiFTStream(vocoder, own_stream=second)
    return TorchToken2Wav(FlowStream(flow, pages, eager), wave, settings.lookahead), parts


LEAST_PAGES = 64
"""Of a second each, that several lanes of turns must leave: fewer are used up by a few utterances."""
PAGES_OF_TWO = 256
"""That calls captured for two divisions of the GPU must leave, or there is one."""


def _lanes(parts: GpuParts | None) -> int:
    return 1 if parts is None else len(parts.turns)


def _planned(flow: Flow, settings: Token2WavSettings, parts: GpuParts | None) -> tuple[int, GpuParts | None]:
    """Pages that the settings allow and the device has room for, beside calls captured for the parts."""
    pages = _pages(flow, settings, _lanes(parts))
    if parts is None or parts.of_few is None:
        return pages, parts
    beside_two = _pages(flow, settings, 1, divisions=2)
    if beside_two >= min(PAGES_OF_TWO, pages):
        return beside_two, parts
    logger.info("one division of the GPU, however many speak: two leave room for %d pages", beside_two)
    return pages, dataclasses.replace(parts, of_few=None)


def _pages(flow: Flow, settings: Token2WavSettings, lanes: int, divisions: int = 1) -> int:
    work = work_bytes(turn_rows(flow, settings, lanes), lanes * divisions)
    bytes_ = room(flow.device, settings.most_flow_memory, settings.gpu_reserve_gib, work)
    pages = page_count(flow.config, PagePool(flow, 0).page_bytes, bytes_, settings.most_flow_pages)
    if lanes > 1 and pages < min(LEAST_PAGES, settings.most_flow_pages):
        limit = f"fewer: beside the CUDA graphs of so many lanes there is room for {pages} pages of speech"
        raise InvalidInput("token2wav.turn_lanes", lanes, limit)
    return pages


def _open_engines(
    settings: Token2WavSettings, config: ModelConfig, eager: EagerCalls
) -> Token2WavEngines | None:
    """None for the torch modules, which need none."""
    if settings.backend == "torch":
        return None
    # brings onnx, which nothing else here needs
    from cosyvoice_runtime.compiled.token2wav_engines import open_engines

    return open_engines(settings, config, eager)


def capture_graphs(
    token2wav: TorchToken2Wav, settings: Token2WavSettings, rows: int, part: GpuPart | None = None
) -> PagedSolver | None:
    """Capture what a GPU repeats, if the settings say so; on a part of the GPU, if one is given.

    Returns:
        what takes the captured steps; None where the plain modules do.
    """
    if not settings.cuda_graphs:
        logger.info("backend torch: every kernel is launched")
        return None
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
    buckets = _buckets(flow, rows, fused)
    _fuse_decoder(vocoder.hift, settings)
    calls = token2wav.capture(buckets, of_flow, fused, of_vocoder)
    logger.info("backend torch: CUDA graphs of %d calls in %.1f s", calls, time.monotonic() - started)
    return fused


def _buckets(flow: Flow, rows: int, solver: PagedSolver | None) -> CallBuckets:
    """Of a lane that computes any turns; few are wanted where padding costs nothing."""
    return CallBuckets.up_to(rows, any_past=solver is not None, starts_too=flow.encodes_any_past)


HURRIED_ROWS = 4
"""Hurried chunks in a turn of them alone; more of them wait for each other no longer than for a turn."""


class PartLane(NamedTuple):
    """A lane of turns on a part of the GPU, whose calls are not captured yet."""

    token2wav: TorchToken2Wav
    part: GpuPart
    buckets: CallBuckets
    hurried: bool = False

    def capture(self, solver: PagedSolver | None, rest: Callable[[], None] = lambda: None) -> None:
        """
        Args:
            rest: called after each captured graph.
        """
        device, part = self.token2wav.torch_flow.flow.device, self.part
        of_flow, of_vocoder = (
            PacedCapture(CudaGraphCapture(device, stream), rest) for stream in (part.stream, part.second)
        )
        fused = None if solver is None else solver.on(part.multiprocessors)
        self.token2wav.capture(self.buckets, of_flow, fused, of_vocoder)

    def turns(self, of_few: bool | None) -> TurnsBeside:
        at_launch = partial(torch.cuda.stream, self.part.stream)
        return TurnsBeside(self.token2wav, self.buckets.rows[-1], at_launch, self.hurried, of_few)


def turns_beside(
    token2wav: TorchToken2Wav,
    settings: Token2WavSettings,
    rows: int,
    parts: GpuParts,
    solver: PagedSolver | None,
) -> tuple[list[TurnsBeside], Later | None]:
    """What computes turns on the other parts of a GPU, and hurried chunks on that for steps; by division.

    Args:
        rows: most utterances in a turn.
        solver: that :func:`capture_graphs` returned.

    Returns:
        all of it, and what captures the calls of the division for few utterances in progress: those of the
        other one will do until it has.
    """
    one_device = token2wav.torch_flow.flow.device == token2wav.torch_vocoder.device
    if not (settings.cuda_graphs and one_device):
        logger.info(
            "hurried chunks wait for turns: cuda_graphs=%s, vocoder_device=%s",
            settings.cuda_graphs,
            settings.vocoder_device,
        )
        return [], None
    started = time.monotonic()
    buckets = _buckets(token2wav.torch_flow.flow, rows, solver)
    hurried = CallBuckets(batch_buckets(HURRIED_ROWS), range(1, HURRIED_BLOCKS + 1), buckets.before)

    def lanes(parts: GpuParts, turns: Sequence[GpuPart]) -> list[PartLane]:
        made = [PartLane(token2wav.beside(part.second), part, buckets) for part in turns]
        if settings.first_chunks_beside:
            first = parts.first
            made.append(PartLane(token2wav.beside(first.second), first, hurried, hurried=True))
        return made

    few = parts.of_few
    of_many, of_few = lanes(parts, parts.turns[1:]), [] if few is None else lanes(few, few.turns)
    for lane in of_many:
        lane.capture(solver)
    logger.info(
        "beside turns: %d lanes of turns more, hurried chunks %s; %s; captured in %.1f s",
        len(parts.turns) - 1,
        "too" if settings.first_chunks_beside else "wait, as first_chunks_beside says",
        "one division of the GPU" if few is None else "the same for few utterances in progress beside work",
        time.monotonic() - started,
    )
    beside = [lane.turns(None if few is None else False) for lane in of_many]
    beside += [lane.turns(of_few=True) for lane in of_few]
    return beside, partial(_capture_later, of_few, solver) if of_few else None


def _capture_later(lanes: Sequence[PartLane], solver: PagedSolver | None, rest: Callable[[], None]) -> None:
    """Capture calls of lanes that nobody uses yet, in a thread of its own while others compute."""
    started = time.monotonic()
    device = lanes[0].token2wav.torch_flow.flow.device
    with as_current(device), on_own_stream(device):
        for lane in lanes:
            lane.capture(solver, rest)
        torch.cuda.current_stream(device).synchronize()
    logger.info("few utterances in progress: captured beside work in %.1f s", time.monotonic() - started)


def _fused_solver(flow: Flow, settings: Token2WavSettings) -> PagedSolver | None:
    """None where the plain modules take the steps."""
    obstacle = solver_obstacle(flow.device, flow.dtype, flow.config.blockwise, flow.solver.name)
    if not fused_chosen(settings.kernels, "the flow's steps", flow.device, obstacle):
        return None
    # defines Triton kernels, which only the CUDA build of torch brings
    from cosyvoice_runtime.kernels.solvers import fused_solver

    return fused_solver(flow)


def _fuse_encoder(flow: Flow, settings: Token2WavSettings) -> None:
    """Let a fused kernel attend in the encoder where it can and the settings say so."""
    if flow.encodes_any_past:
        return  # nothing in it attends
    config = flow.config.conformer
    obstacle = encoder_obstacle(flow.device, flow.dtype, config)
    if not fused_chosen(settings.kernels, "attention of the flow's encoder", flow.device, obstacle):
        return
    # defines Triton kernels, which only the CUDA build of torch brings
    from cosyvoice_runtime.kernels.fused_encoder import FusedEncoder

    flow.paged_encoder = FusedEncoder.of(flow)


def _fuse_decoder(vocoder: HiFT, settings: Token2WavSettings) -> None:
    """Let fused kernels take the decoder where they can and the settings say so."""
    obstacle = decoder_obstacle(vocoder.device, getattr(torch, settings.dtype))
    if not fused_chosen(settings.kernels, "the vocoder's decoder", vocoder.device, obstacle):
        return
    # defines Triton kernels, which only the CUDA build of torch brings
    from cosyvoice_runtime.kernels.fused_decoder import FusedDecoder

    vocoder.fuse(FusedDecoder.of(vocoder.decoder))
