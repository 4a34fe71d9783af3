"""How token2wav has its GPUs: shared with the speech LM, or divided for turns of its own."""

from __future__ import annotations

from cosyvoice_runtime.checkpoint.config_flow import FlowConfig
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.gpu.partitions.shared_gpu import NOT_SHARED, SharedGpu, SharedGpus, SoleUse
from cosyvoice_runtime.settings import TensorrtLlmSettings, Token2WavSettings
from cosyvoice_runtime.settings.gpu_memory import divide_one_gpu
from cosyvoice_runtime.settings.model import gpu_number
from cosyvoice_runtime.settings.runtime_choice import TORCH

HURRIED_SHARE = 0.25
"""Share of a GPU's multiprocessors for hurried chunks where the speech LM is on another GPU."""
SHARE_OF_FEW = 0.37
"""Share of the speech LM while few utterances are in progress, which brings first audio sooner."""


def gpus_of(settings: Token2WavSettings, shared: SharedGpus) -> list[SharedGpu]:
    """Of each device in the settings' order.

    Args:
        shared: of GPUs that another network computes on in this process, by number.
    """
    return [_gpu_of(device, settings, shared) for device in settings.devices]


def shared_gpus(lm: TensorrtLlmSettings, settings: Token2WavSettings) -> SharedGpus:
    """The GPU that the speech LM and token2wav divide between them, by its number; none where they don't.

    Args:
        settings: of token2wav.
    """
    gpu = gpu_number(lm.device)
    if gpu is None or not divide_one_gpu(lm, settings):
        return NOT_SHARED
    from cosyvoice_runtime.gpu.partitions.division import share_gpu  # a CPU's deployment has no torch

    if not _in_parts(settings):
        return {gpu: share_gpu(gpu, lm.gpu_share)}
    of_few = SHARE_OF_FEW if settings.first_chunks_beside else 0.0
    return {gpu: share_gpu(gpu, lm.gpu_share, of_few)}


def _gpu_of(device: str, settings: Token2WavSettings, shared: SharedGpus) -> SharedGpu:
    gpu = gpu_number(device)
    if gpu in shared:
        return shared[gpu]
    if gpu is None or not (settings.first_chunks_beside and _in_parts(settings)):
        return SoleUse()
    from cosyvoice_runtime.gpu.partitions.division import own_gpu  # a CPU's deployment has no torch

    return own_gpu(gpu, HURRIED_SHARE)


def _in_parts(settings: Token2WavSettings) -> bool:
    """Whether turns can be computed on parts of a GPU: their calls are captured there."""
    captured = settings.backend == TORCH and settings.cuda_graphs
    return (
        captured and type(load_config(settings.checkpoint_dir).flow) is FlowConfig
    )  # a subclass has no pages
