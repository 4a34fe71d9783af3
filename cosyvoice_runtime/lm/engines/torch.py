"""The engine ``torch``: the library's own batch decoder."""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch

from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.gpu.cuda_graphs import (
    CaptureOnParts,
    CudaGraphCapture,
    GraphCapture,
    attend_unplanned,
    give_back,
)
from cosyvoice_runtime.gpu.kernels.choice import fused_chosen
from cosyvoice_runtime.gpu.partitions.partition import GpuParts
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu
from cosyvoice_runtime.lm import BatchDecoder, SpeechLM
from cosyvoice_runtime.lm.cache import CachePool, CacheUse
from cosyvoice_runtime.lm.engines.engine import (
    BatchEngine,
    OpenEngine,
    Progress,
    check_shared_room,
    shared_pool,
)
from cosyvoice_runtime.lm.kernels.choice import draw_obstacle, step_obstacle
from cosyvoice_runtime.lm.torch.prefill_graphs import LogitsPrefill
from cosyvoice_runtime.lm.torch.slot_draws import DrawSlots, draw_plain
from cosyvoice_runtime.lm.torch.speech_decoder import SpeechDecoder, load_speech_lm
from cosyvoice_runtime.lm.torch.step_graphs import LogitsStep
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.settings import TensorrtLlmSettings

logger = logging.getLogger(__name__)


FUSED_HELP = (
    "Whether fused kernels take the speech LM's steps and captured prompts: 1, or 0 for plain modules."
)
NOT_CAPTURED = "steps are not captured"
GPU_PREFILL_BATCH = 16
"""Prompts in one pass: 16 of usual length take three times as long as one."""


class StepStreams:
    """One step's work follows the other's, whichever stream they go into.

    Args:
        shared: the GPU, if token2wav computes on it in this process.
    """

    def __init__(self, device: torch.device, shared: SharedGpu | None) -> None:
        self._device, self._shared = device, shared
        parts = None if shared is None else shared.parts
        of_parts = [] if parts is None else [part.stream for part in parts.all_for_steps]
        # Of its own: in one process token2wav's thread works on the same GPU.
        self._streams = [torch.cuda.Stream(device), *of_parts]
        self._last = 0
        self._captured: CaptureOnParts | None = None

    def capture(self, whole: CudaGraphCapture) -> GraphCapture:
        """Make the capture of graphs that are replayed in whichever stream is next.

        Graphs of the partition for few utterances are captured alongside work, if that has not begun; until
        then they are replayed on the partition for many.
        """
        _, *of_parts = self._streams
        if self._shared is None or not of_parts:
            return whole
        first, *others = (CudaGraphCapture(self._device, stream) for stream in of_parts)
        self._captured = CaptureOnParts([whole, first], lambda: self._last)
        if not self._shared.leave([partial(self._captured.add, capture) for capture in others]):
            self._captured = CaptureOnParts([whole, first, *others], lambda: self._last)
        return self._captured

    def next(self) -> AbstractContextManager[object]:
        """Context of the next step, which waits for the last one's work."""
        part = None if self._shared is None else self._shared.steps
        number = 0 if part is None else self._streams.index(part.stream)
        stream = self._streams[number]
        if number != self._last:
            stream.wait_stream(self._streams[self._last])
            self._last = number
        return torch.cuda.stream(stream)

    def close(self) -> None:
        """Wait for all that was launched; nothing more is captured."""
        if self._captured is not None:
            self._captured.end()
        self._streams[self._last].synchronize()


class CacheMetrics:
    """Called with a cache's use after each step, by one thread; told anew, counters go on."""

    def __init__(self, metrics: Metrics) -> None:
        self._pages = metrics.gauge("cosyvoice_lm_cache_pages", "Pages of the speech LM's cache.")
        self._held = metrics.gauge("cosyvoice_lm_cache_pages_in_use", "Pages that requests hold.")
        self._without = metrics.gauge(
            "cosyvoice_lm_requests_without_pages", "Requests with a slot that hold no page."
        )
        self._evictions = metrics.counter(
            "cosyvoice_lm_evictions_total", "Requests whose pages others got, and that are fed again."
        )
        self._recomputed = metrics.counter(
            "cosyvoice_lm_recomputed_positions_total", "Positions fed again because of that."
        )
        self._told = CacheUse(0, 0, 0, 0, 0)

    def opened(self) -> None:
        """A new cache counts from 0."""
        self._told = self._told._replace(evictions=0, recomputed=0)

    def __call__(self, use: CacheUse) -> None:
        told, self._told = self._told, use
        if use == told:
            return
        self._pages.set(use.pages)
        self._held.set(use.held)
        self._without.set(use.without)
        self._evictions.add(use.evictions - told.evictions)
        self._recomputed.add(use.recomputed - told.recomputed)


class TorchEngine(BatchEngine):
    """`BatchDecoder` as an engine.

    Args:
        graphs: on a GPU, replay captured steps.
        step: what is captured, if not the network's own step.
        draw: draws after captured passes over prompts.
        step_draw: draws in captured steps; None takes ``draw``.
        shared: the GPU, if token2wav computes on it in this process.
        pool: pages that all utterances share, if they do.
        watch: told what of the cache is in use.
        prefill: what is captured of prompts, if not the network's own pass.
    """

    def __init__(
        self,
        lm: SpeechDecoder,
        slots: int,
        max_len: int,
        graphs: bool = True,
        step: LogitsStep | None = None,
        draw: DrawSlots = draw_plain,
        step_draw: DrawSlots | None = None,
        shared: SharedGpu | None = None,
        pool: CachePool | None = None,
        watch: CacheMetrics | None = None,
        prefill: LogitsPrefill | None = None,
    ) -> None:
        on_gpu = lm.device.type == "cuda"
        self._streams = StepStreams(lm.device, shared) if on_gpu else None
        prefill_batch = GPU_PREFILL_BATCH if on_gpu else 1
        capture: GraphCapture | None = None
        if self._streams is not None and graphs:
            capture = self._streams.capture(CudaGraphCapture(lm.device))
        started = time.monotonic()
        decoder = BatchDecoder(
            lm,
            slots,
            max_len,
            capture=capture,
            prefill_batch=prefill_batch,
            captured_step=step,
            draw=draw,
            step_draw=step_draw,
            pool=pool,
            captured_prefill=prefill,
        )
        self._decoder, self._watch = decoder, watch
        if watch is not None:
            watch.opened()
        super().__init__(decoder, prefill_batch)
        if on_gpu:
            # Before steps on another stream than this thread's; token2wav plans with what is free.
            give_back(lm.device)
        logger.info(
            "engine torch: %d slots of %d positions%s, %.0f MiB of cache, %s",
            slots,
            max_len,
            "" if pool is None else f" at most, which share {pool.pages} pages of {pool.page}",
            decoder.cache_bytes / 2**20,
            "eager steps, draws on the host"
            if capture is None
            else f"{'steps and prompts' if isinstance(lm, SpeechLM) else 'steps'} captured in "
            f"{time.monotonic() - started:.1f} s, "
            f"draws in {'plain operations' if draw is draw_plain else 'one kernel'} among them",
        )

    def step(self) -> list[Progress]:
        with nullcontext() if self._streams is None else self._streams.next():
            progress = super().step()
        self._tell()
        return progress

    def cancel(self, handle: Hashable) -> None:
        super().cancel(handle)
        self._tell()

    def close(self) -> None:
        if self._streams is not None:
            self._streams.close()  # steps under way write into memory that is free after this
        del self._decoder
        super().close()

    def _tell(self) -> None:
        if self._watch is not None:
            self._watch(self._decoder.cache_use)


def prepare(settings: TensorrtLlmSettings, shared: SharedGpu | None = None) -> OpenEngine:
    """See `engine.prepare_engine`."""
    attend_unplanned()
    config = load_config(settings.checkpoint_dir)
    check_shared_room(settings, config.speech_lm.max_positions)
    tensors = load_tensors(Layout(settings.checkpoint_dir), "llm", config)
    dtype = getattr(torch, settings.dtype)
    lm = load_speech_lm(config.speech_lm, tensors, settings.device, dtype)
    step, prefill = _fused_passes(lm, settings, None if shared is None else shared.parts)
    Metrics(settings.name).gauge("cosyvoice_lm_fused_kernels", FUSED_HELP).set(step is not None)
    size = settings.max_slots, settings.max_sequence_tokens
    draw = draw_plain if settings.kernels == "plain" else _draw_in_graphs(lm.device)
    step_draw = None if step is None or draw is draw_plain else _draw_behind_fused_step()
    pool = shared_pool(settings, steps_read_pages=step is not None)
    watch = CacheMetrics(Metrics(settings.name))
    return partial(
        TorchEngine, lm, *size, settings.cuda_graphs, step, draw, step_draw, shared, pool, watch, prefill
    )


def _fused_passes(
    lm: SpeechDecoder, settings: TensorrtLlmSettings, parts: GpuParts | None
) -> tuple[LogitsStep, LogitsPrefill] | tuple[None, None]:
    """Steps and prompts; none where the plain modules take them."""
    obstacle = step_obstacle(lm.device, lm.dtype, lm.config) if settings.cuda_graphs else NOT_CAPTURED
    chosen = fused_chosen(settings.kernels, "the speech LM's steps and prompts", lm.device, obstacle)
    if not chosen or not isinstance(lm, SpeechLM):
        return None, None
    # define Triton kernels, which only the CUDA build of torch brings
    from cosyvoice_runtime.lm.kernels.fused_prefill import FusedPrefill
    from cosyvoice_runtime.lm.kernels.fused_step import FusedStep

    max_len, of_steps = settings.max_sequence_tokens, () if parts is None else parts.all_for_steps
    return FusedStep(lm, max_len, chained=True, parts=of_steps), FusedPrefill(lm, max_len)


def _draw_in_graphs(device: torch.device) -> DrawSlots:
    """The kernel where it runs, or its plain twin."""
    obstacle = draw_obstacle(device)
    if obstacle is not None:
        logger.info("the speech LM's tokens are drawn by plain operations: %s", obstacle)
        return draw_plain
    from cosyvoice_runtime.lm.kernels.slot_draw import slot_draw

    return slot_draw


def _draw_behind_fused_step() -> DrawSlots:
    from cosyvoice_runtime.lm.kernels.slot_draw import chained_slot_draw

    return chained_slot_draw
