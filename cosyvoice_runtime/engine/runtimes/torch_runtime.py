"""token2wav on torch: its modules, or TensorRT engines in their place, and the memory left to pages."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch

from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.engine.runtimes.runtime import (
    ConcurrentNetworks,
    WaveRuntime,
    WideNetworks,
    host_room,
    page_count,
    warm_up,
)
from cosyvoice_runtime.engine.runtimes.torch_graphs import (
    TorchToken2Wav,
    as_current,
    capture_graphs,
    concurrent_networks,
    on_own_stream,
)
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.families import flow_parts, load
from cosyvoice_runtime.flow.kernels.choice import solver_obstacle
from cosyvoice_runtime.flow.torch.flow import Flow
from cosyvoice_runtime.flow.torch.pages import PagePool
from cosyvoice_runtime.flow.torch.stream import FlowStream
from cosyvoice_runtime.gpu.cuda_graphs import EagerCalls, attend_unplanned, give_back
from cosyvoice_runtime.gpu.kernels.choice import fused_chosen
from cosyvoice_runtime.gpu.memory import free_and_total
from cosyvoice_runtime.gpu.partitions.partition import GpuParts
from cosyvoice_runtime.gpu.partitions.shared_gpu import Later
from cosyvoice_runtime.settings import Token2WavSettings
from cosyvoice_runtime.settings.gpu_memory import (
    GIB,
    MEDIUM_BATCH,
    WORK_BYTES,
    room_for_pages,
    rows_on,
    unclaimed_bytes,
    work_bytes,
)
from cosyvoice_runtime.settings.token2wav import EIGHT_BIT_PAGES
from cosyvoice_runtime.token2wav.chunked_token2wav import ChunkedToken2Wav, Precision
from cosyvoice_runtime.token2wav.loading import load_token2wav as load_wave_networks
from cosyvoice_runtime.token2wav.loading import require_own_schedule
from cosyvoice_runtime.token2wav.token2wav import AnyToken2Wav
from cosyvoice_runtime.vocoder.torch import HiFT, HiFTStream

if TYPE_CHECKING:
    from cosyvoice_runtime.tensorrt.token2wav_engines import Token2WavEngines

logger = logging.getLogger(__name__)


def batch_rows(flow: Flow, settings: Token2WavSettings) -> int:
    """Most utterances in a batch: fewer than ``max_batch`` where the memory is better spent on pages.

    Plain modules gain little from more than 16, and take more memory for them.
    """
    rows = settings.most_batch
    if flow.device.type != "cuda" or settings.backend != "torch":
        return rows
    rows = rows_on(free_and_total(flow.device)[1], rows)
    if not settings.cuda_graphs or settings.kernels == "plain" or _plain_alone(flow):
        rows = min(rows, MEDIUM_BATCH)
    return rows


def _plain_alone(flow: Flow) -> bool:
    return solver_obstacle(flow.device, flow.dtype, flow.config.blockwise) is not None


def room(device: torch.device, share: float, reserve_gib: float = 0.0, work_bytes: int = WORK_BYTES) -> int:
    """Bytes for pages: a share of the device's memory, and on a GPU no more than its work leaves.

    Args:
        reserve_gib: what other processes take of a GPU, before or after; it is counted even if they have not
            loaded yet, so that the order of loading does not matter.
        work_bytes: what this process still needs of a GPU beside the pages.
    """
    if device.type != "cuda":
        return host_room(share)
    free, total = free_and_total(device)
    unclaimed = unclaimed_bytes(total, reserve_gib)
    if free < unclaimed:
        logger.warning(
            "flow: %.1f of the %.1f GiB of %s are free; others hold more than gpu_reserve_gib=%g",
            free / GIB,
            total / GIB,
            device,
            reserve_gib,
        )
    return room_for_pages(total, min(free, unclaimed), share, work_bytes)


class Opened(NamedTuple):
    """Networks on a device.

    Attributes:
        rows: most utterances in a batch.
        batches_at_once: most batches under way.
        concurrent: networks for batches at the same time, or for few utterances.
        later: prepares those for few utterances.
    """

    token2wav: AnyToken2Wav
    rows: int
    device: torch.device
    batches_at_once: int
    concurrent: Sequence[ConcurrentNetworks] = ()
    later: Later | None = None


def open_runtime(settings: Token2WavSettings, parts: GpuParts | None = None) -> WaveRuntime:
    """The warm networks on the one device of the settings; ``parts`` are partitions of a GPU for batches."""
    stream = None if parts is None else parts.turns.stream
    with as_current(torch.device(settings.device)):
        # Otherwise transposed convolutions may add in any order, and the same speech differ in its last bits.
        torch.backends.cudnn.deterministic = True
        attend_unplanned()
        config = load_config(settings.checkpoint_dir)
        opened: Opened = load(flow_parts(config.flow.estimator).runtime)(settings, config, parts)
        token2wav, rows, device, batches_at_once, concurrent, later = opened
        on_gpu = device.type == "cuda"
        if on_gpu:
            give_back(device)  # Captures leave the memory of their warm-up.
        of_few = None if all(each.of_few is None for each in concurrent) else False
        # On a CPU the first batch costs little more than later ones, and a large one takes long.
        warm_up(token2wav, rows if on_gpu else 1)
        for each in concurrent:
            if later is None or not each.of_few:
                with each.at_launch():
                    warm_up(each.token2wav, each.rows)
        if on_gpu:
            torch.cuda.synchronize(device)  # Other threads launch in streams of their own.
    at_work = partial(on_own_stream, device, stream)
    return WaveRuntime(
        name=settings.backend,
        token2wav=token2wav,
        rows=rows,
        on_gpu=on_gpu,
        at_work=at_work,
        batches_at_once=batches_at_once,
        batches_overlap=isinstance(token2wav, TorchToken2Wav)
        and token2wav.torch_vocoder.own_stream is not None,
        of_few=of_few,
        concurrent=concurrent,
        later=later,
    )


def open_paged(settings: Token2WavSettings, config: ModelConfig, parts: GpuParts | None) -> Opened:  # noqa: ARG001
    token2wav, parts = _load(settings, parts)
    flow = token2wav.torch_flow.flow
    rows = batch_rows(flow, settings)
    on_gpu = flow.device.type == "cuda"
    concurrent: list[ConcurrentNetworks] = []
    later: Later | None = None
    if on_gpu and settings.backend == "torch":
        part = None if parts is None else parts.turns
        solver = capture_graphs(token2wav, settings, rows, part)
        if parts is not None:
            concurrent, later = concurrent_networks(token2wav, settings, rows, parts, solver)
    return Opened(token2wav, rows, flow.device, _batches_at_once(settings, on_gpu), concurrent, later)


def open_chunked(settings: Token2WavSettings, config: ModelConfig, parts: GpuParts | None) -> Opened:  # noqa: ARG001
    """Open networks that compute chunks one after another: rows of a batch would be heard in each other's
    norms."""
    require_own_schedule("lookahead_frames", settings.lookahead)
    if settings.page_format == EIGHT_BIT_PAGES:
        raise InvalidInput(
            "token2wav.page_format", settings.page_format, "auto: this checkpoint has no pages"
        )
    dtype = getattr(torch, settings.dtype)
    token2wav = ChunkedToken2Wav.from_checkpoint(
        Layout(settings.checkpoint_dir),
        config,
        settings.device,
        Precision(dtype, dtype),
        settings.num_steps,
        settings.solver,
    )
    device = token2wav.regulated.device
    fused_chosen(settings.kernels, "flow and vocoder", device, "this checkpoint's chunks are wholes")
    logger.info("backend torch: whole chunks, one after another; every kernel is launched")
    return Opened(token2wav, 1, device, batches_at_once=1)


def _batches_at_once(settings: Token2WavSettings, on_gpu: bool) -> int:
    """Two batches where the next one is launched before the last ends; engines have memory for one call."""
    return 2 if on_gpu and settings.backend == "torch" else 1


def load_token2wav(settings: Token2WavSettings) -> TorchToken2Wav:
    """The networks on the one device of the settings, and pages."""
    token2wav, _ = _load(settings, None)
    return token2wav


WIDE_BYTES = 4 * 2**30
"""Memory of a GPU for full-size networks in float32: 1.5 GiB, and what they compute a minute of speech in."""


def load_wide(settings: Token2WavSettings) -> WideNetworks:
    """The networks in float32, without pages: on the one device of the settings or, where it has too little
    memory left, on the CPU."""
    layout, config = Layout(settings.checkpoint_dir), load_config(settings.checkpoint_dir)
    device = torch.device(settings.device)
    if device.type == "cuda" and free_and_total(device)[0] < WIDE_BYTES:
        device = torch.device("cpu")
    on_gpu = device.type == "cuda"
    at_work = partial(on_own_stream, device, torch.cuda.Stream(device) if on_gpu else None)
    single = Precision(torch.float32, torch.float32)
    started = time.monotonic()
    with at_work():
        token2wav = load_wave_networks(
            layout, config, device, single, settings.num_steps, settings.lookahead, settings.solver, pages=0
        )
    logger.info("flow and vocoder in float32 on %s, loaded in %.1f s", device, time.monotonic() - started)
    return WideNetworks(token2wav, at_work, partial(give_back, device) if on_gpu else lambda: None)


def _load(settings: Token2WavSettings, parts: GpuParts | None) -> tuple[TorchToken2Wav, GpuParts | None]:
    """The networks with pages, and the partitions of the GPU that there is memory for."""
    layout, config = Layout(settings.checkpoint_dir), load_config(settings.checkpoint_dir)
    device, dtype = settings.device, getattr(torch, settings.dtype)
    eager = EagerCalls()
    engines = _open_engines(settings, config, eager)
    flow = Flow.from_tensors(
        config.flow, load_tensors(layout, "flow", config), device, dtype, settings.num_steps, settings.solver
    )
    if engines is not None:
        engines.take(flow)
    flow.codes_pages = settings.page_format == EIGHT_BIT_PAGES
    decoder = None if engines is None else engines.decoding()
    vocoder = HiFT.from_tensors(config.vocoder, load_tensors(layout, "hift", config), device, dtype, decoder)
    pages, parts = _planned(flow, settings, parts)
    second: torch.cuda.Stream | None = None
    if parts is not None and settings.cuda_graphs:
        second = parts.turns.second
    wave = HiFTStream(vocoder, own_stream=second)
    return TorchToken2Wav(FlowStream(flow, pages, eager), wave, settings.lookahead), parts


PAGES_OF_TWO = 256
"""Fewest pages that calls captured for two divisions of the GPU may leave; else there is one division."""


def _planned(flow: Flow, settings: Token2WavSettings, parts: GpuParts | None) -> tuple[int, GpuParts | None]:
    """Pages that the settings allow and the device has room for, and the partitions that are captured."""
    pages = _pages(flow, settings)
    if parts is None or parts.of_few is None:
        return pages, parts
    beside_two = _pages(flow, settings, divisions=2)
    if beside_two >= min(PAGES_OF_TWO, pages):
        return beside_two, parts
    logger.info("one division of the GPU, however many speak: two leave room for %d pages", beside_two)
    return pages, dataclasses.replace(parts, of_few=None)


def _pages(flow: Flow, settings: Token2WavSettings, divisions: int = 1) -> int:
    work = work_bytes(batch_rows(flow, settings), divisions)
    bytes_ = room(flow.device, settings.most_flow_memory, settings.gpu_reserve_gib, work)
    return page_count(flow.config, PagePool(flow, 0).page_bytes, bytes_, settings.most_flow_pages)


def _open_engines(
    settings: Token2WavSettings, config: ModelConfig, eager: EagerCalls
) -> Token2WavEngines | None:
    """TensorRT engines; None for the torch modules, which need none."""
    if settings.backend == "torch":
        return None
    # The import needs onnx, which backend torch does without.
    from cosyvoice_runtime.tensorrt.token2wav_engines import open_engines

    return open_engines(settings, config, eager)
