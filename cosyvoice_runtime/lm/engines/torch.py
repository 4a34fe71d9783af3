"""The engine ``torch``: this library's batch decoder."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch

from cosyvoice_runtime.checkpoint import Layout, load_config
from cosyvoice_runtime.checkpoint.alignment_heads import AlignmentHeads
from cosyvoice_runtime.checkpoint.as_torch import load_tensors
from cosyvoice_runtime.checkpoint.config_lm import SpeechLMConfig
from cosyvoice_runtime.gpu.cuda_graphs import (
    CaptureOnParts,
    CudaGraphCapture,
    GraphCapture,
    attend_unplanned,
    give_back,
)
from cosyvoice_runtime.gpu.kernels.ahead import SPEECH_LM, wait_until_compiled
from cosyvoice_runtime.gpu.kernels.choice import (
    LEAST_DEPTH,
    fused_chosen,
    machine_obstacle,
    triton_obstacle,
)
from cosyvoice_runtime.gpu.nvidia import KERNELS_FROM
from cosyvoice_runtime.gpu.partitions.partition import GpuParts
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu
from cosyvoice_runtime.lm.cache import CachePool, CacheUse
from cosyvoice_runtime.lm.engines.engine import (
    OpenEngine,
    check_cache_room,
    shared_pool,
)
from cosyvoice_runtime.lm.generation import Progress
from cosyvoice_runtime.lm.torch.adapters import load_adapters
from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
from cosyvoice_runtime.lm.torch.device_steps import PLAIN_PASSES, CapturedPasses
from cosyvoice_runtime.lm.torch.network import SpeechLM
from cosyvoice_runtime.lm.torch.slot_draws import DrawSlots, draw_plain
from cosyvoice_runtime.lm.torch.speech_decoder import SpeechDecoder, load_speech_lm
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.settings import TensorrtLlmSettings

logger = logging.getLogger(__name__)


FUSED_HELP = (
    "Whether fused kernels take the speech LM's steps and captured prompts: 1, or 0 for plain modules."
)
NOT_CAPTURED = "steps are not captured"
ROWS_OF_A_PROGRAM = 32
"""Most rows of a layer that a kernel of the speech LM computes in one program."""
GPU_PREFILL_BATCH = 16
"""Prompts in one pass: 16 of usual length take three times as long as one."""


class StepStreams:
    """The streams of a GPU into which steps go; each step follows the one before, whatever its stream.

    Args:
        shared: the GPU, if token2wav computes on it in this process.
    """

    def __init__(self, device: torch.device, shared: SharedGpu | None) -> None:
        self._device, self._shared = device, shared
        parts = None if shared is None else shared.parts
        of_parts = [] if parts is None else [part.stream for part in parts.all_for_steps]
        # Steps have a stream of their own: in one process token2wav's thread works on the same GPU.
        self._streams = [torch.cuda.Stream(device), *of_parts]
        self._last = 0
        self._captured: CaptureOnParts | None = None

    def capture(self, whole: CudaGraphCapture) -> GraphCapture:
        """Make the capture of graphs that are replayed in any of the streams.

        Graphs of the partition for few utterances are captured while others compute; until then steps are
        replayed on the partition for many.
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
        """Context of the next step, which waits for the step before."""
        part = None if self._shared is None else self._shared.steps
        number = 0 if part is None else self._streams.index(part.stream)
        stream = self._streams[number]
        if number != self._last:
            stream.wait_stream(self._streams[self._last])
            self._last = number
        return torch.cuda.stream(stream)

    def close(self) -> None:
        """Wait for all that was launched, and end captures."""
        if self._captured is not None:
            self._captured.end()
        self._streams[self._last].synchronize()


class CacheMetrics:
    """Metrics of a cache; one thread calls it with its use after each step."""

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
        """Let the counters go on with a new cache, which counts from 0."""
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


class TorchEngine(BatchDecoder):
    """A decoder whose steps go into the streams of a GPU, and that shows the use of its cache.

    Args:
        graphs: whether a GPU replays captured steps.
        passes: the computations that are captured.
        shared: the GPU, if token2wav computes on it in this process.
        pool: pages that all utterances share, if they do.
        watch: called with the use of the cache.
        heads: layer and head of those that follow the text.
    """

    def __init__(
        self,
        lm: SpeechDecoder,
        slots: int,
        max_len: int,
        graphs: bool = True,
        passes: CapturedPasses = PLAIN_PASSES,
        shared: SharedGpu | None = None,
        pool: CachePool | None = None,
        watch: CacheMetrics | None = None,
        heads: Sequence[tuple[int, int]] = (),
    ) -> None:
        on_gpu = lm.device.type == "cuda"
        self._streams = StepStreams(lm.device, shared) if on_gpu else None
        self._watch = watch
        capture: GraphCapture | None = None
        if self._streams is not None and graphs:
            wait_until_compiled(SPEECH_LM)
            capture = self._streams.capture(CudaGraphCapture(lm.device))
        started = time.monotonic()
        super().__init__(lm, slots, max_len, capture, GPU_PREFILL_BATCH if on_gpu else 1, passes, pool, heads)
        if watch is not None:
            watch.opened()
        if on_gpu:
            # Before steps on another stream than this thread's; token2wav plans with what is free.
            give_back(lm.device)
        logger.info(
            "engine torch: %d slots of %d positions%s, %.0f MiB of cache, %s",
            slots,
            max_len,
            "" if pool is None else f" at most, which share {pool.pages} pages of {pool.page}",
            self.cache_bytes / 2**20,
            "eager steps, draws on the host"
            if capture is None
            else f"{'steps and prompts' if isinstance(lm, SpeechLM) else 'steps'} captured in "
            f"{time.monotonic() - started:.1f} s, "
            f"draws in {'plain operations' if passes.draw is draw_plain else 'one kernel'} among them",
        )

    def step(self) -> list[Progress]:
        with nullcontext() if self._streams is None else self._streams.next():
            progress = super().step()
        self._tell()
        return progress

    def step_some(self, first: Collection[Hashable]) -> list[Progress]:
        with nullcontext() if self._streams is None else self._streams.next():
            progress = super().step_some(first)
        self._tell()
        return progress

    def cancel(self, handle: Hashable) -> None:
        super().cancel(handle)
        self._tell()

    def close(self) -> None:
        if self._streams is not None:
            self._streams.close()  # Steps under way write into the memory that this frees.
        super().close()

    def _tell(self) -> None:
        if self._watch is not None:
            self._watch(self.cache_use)


def prepare(settings: TensorrtLlmSettings, shared: SharedGpu | None = None) -> OpenEngine:
    """Load the network and the kernels, as `engine.prepare_engine` says."""
    attend_unplanned()
    config = load_config(settings.checkpoint_dir)
    check_cache_room(settings, config.speech_lm.max_positions, shares_pages=True)
    layout = Layout(settings.checkpoint_dir)
    tensors = load_tensors(layout, "llm", config)
    lm = load_speech_lm(config.speech_lm, tensors, settings.device, getattr(torch, settings.dtype))
    load_adapters(lm, layout, config.speech_lm)
    heads = AlignmentHeads.of(layout, config.speech_lm)
    passes = _captured_passes(lm, settings, None if shared is None else shared.parts)
    fused = passes.step is not None
    metrics = Metrics(settings.name)
    metrics.gauge("cosyvoice_lm_fused_kernels", FUSED_HELP).set(fused)
    return partial(
        TorchEngine,
        lm,
        settings.max_slots,
        settings.max_sequence_tokens,
        settings.cuda_graphs,
        passes,
        shared,
        shared_pool(settings, steps_read_pages=fused),
        CacheMetrics(metrics),
        () if heads is None else heads.heads,
    )


def _captured_passes(
    lm: SpeechDecoder, settings: TensorrtLlmSettings, parts: GpuParts | None
) -> CapturedPasses:
    """Fused kernels where they run and are chosen, else plain operations."""
    draw = draw_plain if settings.kernels == "plain" else _draw_in_graphs(lm.device)
    obstacle = step_obstacle(lm.device, lm.dtype, lm.config) if settings.cuda_graphs else NOT_CAPTURED
    chosen = fused_chosen(settings.kernels, "the speech LM's steps and prompts", lm.device, obstacle)
    if not chosen or not isinstance(lm, SpeechLM):
        return CapturedPasses(draw=draw, step_draw=draw)
    # These modules define Triton kernels, which only the CUDA build of torch brings.
    from cosyvoice_runtime.lm.kernels.fused_step import FusedStep
    from cosyvoice_runtime.lm.kernels.prefill import FusedPrefill
    from cosyvoice_runtime.lm.kernels.slot_draw import draw_after_step
    from cosyvoice_runtime.lm.kernels.text_rows import text_rows

    max_len, of_steps = settings.max_sequence_tokens, () if parts is None else parts.all_for_steps
    step = FusedStep(lm, max_len, of_steps)
    step_draw = draw_plain if draw is draw_plain else draw_after_step(lm.device)
    return CapturedPasses(step, FusedPrefill(lm, max_len), draw, step_draw, text_rows)


def _draw_in_graphs(device: torch.device) -> DrawSlots:
    """Draw with the kernel where it runs, else with plain operations."""
    obstacle = draw_obstacle(device)
    if obstacle is not None:
        logger.info("the speech LM's tokens are drawn by plain operations: %s", obstacle)
        return draw_plain
    from cosyvoice_runtime.lm.kernels.slot_draw import slot_draw

    return slot_draw


def step_obstacle(device: torch.device, dtype: torch.dtype, config: SpeechLMConfig) -> str | None:
    """Why the fused kernels cannot take the speech LM's steps and prompts; None if they can."""
    return network_obstacle(config) or machine_obstacle(device, dtype, torch.bfloat16)


def network_obstacle(config: SpeechLMConfig) -> str | None:
    """Why the fused kernels cannot compute this speech LM, on whatever GPU; None if they can."""
    if not config.rotary:
        return "they rotate positions, and this speech LM attends by distance"
    if config.head_dim & (config.head_dim - 1) or config.head_dim < LEAST_DEPTH:
        return f"a head of the speech LM has {config.head_dim} values: no power of two, or too few"
    for name in ("hidden_size", "intermediate_size"):
        size = getattr(config, name)
        if size % ROWS_OF_A_PROGRAM:
            return f"the speech LM's {name} is {size}, no multiple of {ROWS_OF_A_PROGRAM}"
    return None


def draw_obstacle(device: torch.device) -> str | None:
    """Why the kernel cannot draw the speech LM's tokens; None if it can."""
    if device.type != "cuda":
        return f"it needs an NVIDIA GPU, not {device.type}"
    if torch.cuda.get_device_capability(device) < KERNELS_FROM:
        return "the GPU's compute capability is below {}.{}".format(*KERNELS_FROM)
    return triton_obstacle()
