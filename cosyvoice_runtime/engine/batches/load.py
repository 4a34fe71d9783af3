"""Schedulers at work, one for each device, from settings and a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.engine.batches.memory import WaveMemory
from cosyvoice_runtime.engine.batches.pages import PageAdmission
from cosyvoice_runtime.engine.batches.router import Preparation, WaveRouter
from cosyvoice_runtime.engine.batches.scheduler import WaveScheduler
from cosyvoice_runtime.engine.batches.service import WaveService
from cosyvoice_runtime.engine.batches.usage import WaveMetrics
from cosyvoice_runtime.engine.batches.wide_waves import WideWaves
from cosyvoice_runtime.engine.runtimes.runtime import WaveRuntime, WideNetworks
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.settings import TensorrtLlmSettings, Token2WavSettings
from cosyvoice_runtime.settings.gpu_memory import divide_one_gpu
from cosyvoice_runtime.settings.machine import check_at_start
from cosyvoice_runtime.settings.model import gpu_number
from cosyvoice_runtime.settings.runtime_choice import TORCH
from cosyvoice_runtime.settings.served_family import require_runs

if TYPE_CHECKING:
    from cosyvoice_runtime.gpu.partitions.partition import GpuParts

CPU_BATCH_S = 0.2
"""Longest batch of a CPU, for the end of which chunks wait that come meanwhile."""
MAX_VOICES = 64
"""Voices that a memory keeps; the one unused for longest makes room."""
SHARE_OF_FEW = 0.37
"""Share of the speech LM while few utterances are in progress, which brings first audio sooner."""

BACKEND_HELP = "What runs the networks, as its label says: 1."
FUSED_HELP = "Whether fused kernels take the flow's steps: 1, or 0 for the plain modules."
FUSED_VOCODER_HELP = "Whether fused kernels take the vocoder's decoder: 1, or 0 for the plain modules."


def open_router(settings: Token2WavSettings, metrics: Metrics, shared: SharedGpu | None = None) -> WaveRouter:
    """Start a scheduler for the GPU, or for each time that the settings name the CPU.

    On a CPU the schedulers share the pages and voices of the settings.

    Args:
        shared: the GPU, if the speech LM computes on it in this process.

    Raises:
        CheckpointError: a file is missing or damaged.
        EngineFileError: the backend's engines are missing or do not match.
        InvalidInput: a setting does not fit the checkpoint or the machine.
    """
    require_runs(settings)
    check_at_start(settings)
    gpus = [shared or SharedGpu() for _ in settings.devices]
    runtimes = open_runtimes(settings, [gpu.parts for gpu in gpus])
    labels = _labels(settings.devices)
    for runtime, label in zip(runtimes, labels, strict=True):
        _show(runtime, metrics, label)
    memories = open_memories(runtimes, settings, metrics)
    preparations = [prepare_few(runtime, gpu) for runtime, gpu in zip(runtimes, gpus, strict=True)]
    schedulers = [
        start_scheduler(runtime, settings, WaveMetrics(metrics, label), memory, gpu)
        for runtime, label, memory, gpu in zip(runtimes, labels, memories, gpus, strict=True)
    ]
    return WaveRouter(schedulers, preparations, memories)


def follow_waves(settings: Token2WavSettings, router: WaveRouter, metrics: Metrics) -> WideWaves:
    """The router's chunks; utterances that break in half precision, which torch alone serves, go on in
    float32."""
    load: Callable[[], WideNetworks] | None = None
    if settings.dtype != "float32":
        from cosyvoice_runtime.engine.runtimes import torch_runtime  # A CPU's deployment has no torch.

        load = partial(torch_runtime.load_wide, settings.on_each_device()[0])
    return WideWaves(router, load, metrics, settings.idle_timeout_s)


def shared_gpu(lm: TensorrtLlmSettings, settings: Token2WavSettings) -> SharedGpu | None:
    """The GPU that the speech LM and token2wav divide between them; None where they don't."""
    gpu = gpu_number(lm.device)
    if gpu is None or not divide_one_gpu(lm, settings):
        return None
    from cosyvoice_runtime.gpu.partitions.division import share_gpu  # A CPU's deployment has no torch.

    if not _partitioned(settings):
        return share_gpu(gpu, lm.gpu_share)
    return share_gpu(gpu, lm.gpu_share, SHARE_OF_FEW if settings.first_chunks_beside else 0.0)


def open_memories(
    runtimes: Sequence[WaveRuntime], settings: Token2WavSettings, metrics: Metrics
) -> list[WaveMemory]:
    """The memory of each runtime; runtimes that share their memory have one."""
    if runtimes[0].shares_memory:
        return [WaveMemory(runtimes[0], MAX_VOICES, metrics, settings.devices[0])] * len(runtimes)
    labels = _labels(settings.devices)
    return [
        WaveMemory(runtime, MAX_VOICES, metrics, label)
        for runtime, label in zip(runtimes, labels, strict=True)
    ]


def open_runtimes(settings: Token2WavSettings, parts: Sequence[GpuParts | None]) -> list[WaveRuntime]:
    """The warm networks on each device of the settings; ``parts`` are partitions of its GPU for batches."""
    if settings.backend == "onnx":
        from cosyvoice_runtime.engine.runtimes import onnx_runtime

        return onnx_runtime.open_runtimes(settings)
    from cosyvoice_runtime.engine.runtimes import torch_runtime  # A CPU's deployment has no torch.

    return [
        torch_runtime.open_runtime(each, part)
        for each, part in zip(settings.on_each_device(), parts, strict=True)
    ]


def start_scheduler(
    runtime: WaveRuntime,
    settings: Token2WavSettings,
    metrics: WaveMetrics,
    memory: WaveMemory,
    gpu: SharedGpu | None = None,
) -> WaveScheduler:
    """Start a scheduler over loaded networks."""
    service = WaveService(
        runtime.token2wav,
        memory.voices,
        settings.idle_timeout_s,
        partial(memory.look, metrics),
        concurrent=[networks.token2wav for networks in runtime.concurrent],
    )
    return WaveScheduler(
        service,
        runtime,
        settings.max_queue_size,
        CPU_BATCH_S,
        gpu,
        PageAdmission(memory.voices, metrics.show_held),
        metrics.show_waiting,
        metrics.show_batch,
    )


def prepare_few(runtime: WaveRuntime, gpu: SharedGpu) -> Preparation:
    """Prepare the division of a GPU for few utterances, if it has one, by captures during service.

    Calls of the speech LM are captured first.
    """
    later = [] if runtime.later is None else [*gpu.take_later(), runtime.later]
    return Preparation(later, (lambda: None) if runtime.of_few is None else gpu.divide_for_few)


def _partitioned(settings: Token2WavSettings) -> bool:
    """Whether batches can be computed on partitions of a GPU, for which their calls are captured."""
    captured = settings.backend == TORCH and settings.cuda_graphs
    # A subclass of FlowConfig has no pages.
    return captured and type(load_config(settings.checkpoint_dir).flow) is FlowConfig


def _labels(devices: Sequence[str]) -> list[str]:
    """The devices' names; equal ones are numbered."""
    return [
        f"{device} {number}" if devices.count(device) > 1 else device for number, device in enumerate(devices)
    ]


def _show(runtime: WaveRuntime, metrics: Metrics, device: str) -> None:
    labels = {"backend": runtime.name, "device": device}
    metrics.gauge("cosyvoice_token2wav_backend", BACKEND_HELP, **labels).set(1)
    fused = metrics.gauge("cosyvoice_token2wav_fused_kernels", FUSED_HELP, device=device)
    fused.set(runtime.token2wav.flow.fused)
    vocoder = metrics.gauge("cosyvoice_token2wav_fused_vocoder", FUSED_VOCODER_HELP, device=device)
    vocoder.set(runtime.token2wav.fused_vocoder)
