"""From settings and a checkpoint to a service that is warm."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from cosyvoice_runtime.engine.batches.gpus import gpus_of
from cosyvoice_runtime.engine.batches.openings import Openings
from cosyvoice_runtime.engine.batches.preparation import Preparation
from cosyvoice_runtime.engine.batches.router import WaveRouter
from cosyvoice_runtime.engine.batches.scheduler import WaveScheduler
from cosyvoice_runtime.engine.batches.service import WaveService
from cosyvoice_runtime.engine.batches.usage import Usage, WaveMetrics
from cosyvoice_runtime.engine.batches.wave_memory import WaveMemory
from cosyvoice_runtime.engine.runtimes.runtime import WaveRuntime
from cosyvoice_runtime.gpu.partitions.shared_gpu import NOT_SHARED, SharedGpu, SharedGpus
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.settings import Token2WavSettings
from cosyvoice_runtime.settings.machine import check_at_start
from cosyvoice_runtime.settings.served_family import require_backend

if TYPE_CHECKING:
    from cosyvoice_runtime.gpu.partitions.partition import GpuParts

CPU_TURN_S = 0.2
"""Longest batch of a CPU: whoever comes meanwhile waits for its end."""

MAX_VOICES = 64
"""Voices that a memory keeps; the one unused for longest makes room."""

logger = logging.getLogger(__name__)

BACKEND_HELP = "What runs the networks, as its label says: 1."
FUSED_HELP = "Whether fused kernels take the flow's steps: 1, or 0 for the plain modules."
FUSED_VOCODER_HELP = "Whether fused kernels take the vocoder's decoder: 1, or 0 for the plain modules."


def open_router(settings: Token2WavSettings, metrics: Metrics, shared: SharedGpus = NOT_SHARED) -> WaveRouter:
    """Schedulers at work, one for each device, with all limits of the settings each.

    On a CPU they share pages and voices, of which there are as many as the settings say.

    Args:
        shared: of GPUs that another network computes on in this process, by number.

    Raises:
        CheckpointError: a file is missing or damaged.
        EngineFileError: the backend's engines are missing or of something else.
        InvalidInput: a setting does not fit the checkpoint or the machine.
    """
    require_backend(settings)
    check_at_start(settings)
    gpus = gpus_of(settings, shared)
    ready = open_runtimes(settings, [gpu.parts for gpu in gpus])
    labels = _labels(settings.devices)
    for runtime, label in zip(ready, labels, strict=True):
        _show(runtime, metrics, label)
    memories = open_memories(ready, settings, metrics)
    preparations = [prepare_few(runtime, gpu) for runtime, gpu in zip(ready, gpus, strict=True)]
    schedulers = [
        start_scheduler(runtime, settings, WaveMetrics(metrics, label), memory, gpu)
        for runtime, label, memory, gpu in zip(ready, labels, memories, gpus, strict=True)
    ]
    return WaveRouter(schedulers, preparations, partial(_close_all, memories))


def open_memories(
    ready: Sequence[WaveRuntime], settings: Token2WavSettings, metrics: Metrics
) -> list[WaveMemory]:
    """Of each runtime; those that share their memory have one."""
    if ready[0].shares_memory:
        return [WaveMemory(ready[0], MAX_VOICES, metrics, settings.devices[0])] * len(ready)
    labels = _labels(settings.devices)
    return [
        WaveMemory(runtime, MAX_VOICES, metrics, label) for runtime, label in zip(ready, labels, strict=True)
    ]


def open_runtimes(settings: Token2WavSettings, parts: Sequence[GpuParts | None]) -> list[WaveRuntime]:
    """:func:`open_runtime` for each device."""
    if settings.backend == "onnx":
        from cosyvoice_runtime.engine.runtimes import onnx_runtime

        return onnx_runtime.open_runtimes(settings)
    return [open_runtime(each, part) for each, part in zip(settings.on_each_device(), parts, strict=True)]


def open_runtime(settings: Token2WavSettings, parts: GpuParts | None = None) -> WaveRuntime:
    """The networks on the one device of the settings, ready to be fast; not of backend ``onnx``.

    Args:
        parts: of the device, which is a GPU, if turns have only theirs.
    """
    from cosyvoice_runtime.engine.runtimes import torch_runtime  # a CPU's deployment has no torch

    return torch_runtime.open_runtime(settings, parts)


def start_scheduler(
    runtime: WaveRuntime,
    settings: Token2WavSettings,
    metrics: WaveMetrics,
    memory: WaveMemory,
    gpu: SharedGpu | None = None,
) -> WaveScheduler:
    """A scheduler at work over networks that are loaded."""
    service = WaveService(
        runtime.token2wav,
        memory.voices,
        settings.idle_timeout_s,
        partial(_show_usage, metrics, memory),
        beside=[turns.token2wav for turns in runtime.beside],
    )
    return WaveScheduler(
        service,
        runtime,
        settings.max_queue_size,
        CPU_TURN_S,
        gpu,
        Openings(memory.voices, metrics.show_held),
        metrics.show_waiting,
        metrics.show_turn,
    )


def prepare_few(runtime: WaveRuntime, gpu: SharedGpu) -> Preparation:
    """What is captured beside work for few utterances, the speech LM's part first: then the GPU is divided
    for them. Nothing where it never is.
    """
    later = [] if runtime.later is None else [*gpu.take_later(), runtime.later]
    return Preparation(later, gpu.divide_for_few if runtime.of_few is not None else _nothing)


def _nothing() -> None:
    """No lane is for few utterances alone."""


def _show_usage(metrics: WaveMetrics, memory: WaveMemory, usage: Usage) -> None:
    metrics.show(usage)
    memory.look(metrics, usage)


def _close_all(each: Sequence[Preparation | WaveMemory]) -> None:
    for one in each:
        one.close()


def _labels(devices: Sequence[str]) -> list[str]:
    """Devices by name; those of one name are numbered."""
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
