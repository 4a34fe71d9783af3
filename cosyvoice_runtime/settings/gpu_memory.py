"""Memory of a GPU for other processes, captured calls and finished speech, and slots that it carries."""

from __future__ import annotations

from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.gpu.nvidia import GpuFacts
from cosyvoice_runtime.settings.machine import Machine
from cosyvoice_runtime.settings.model import gpu_number
from cosyvoice_runtime.settings.tensorrt_llm import TensorrtLlmSettings
from cosyvoice_runtime.settings.token2wav import EIGHT_BIT_PAGES, Token2WavSettings

GIB = 2**30
TINY_BATCH, SMALL_BATCH, MEDIUM_BATCH = 4, 8, 16
TINY_WORK_BYTES, WORK_BYTES, MEDIUM_WORK_BYTES, LARGE_WORK_BYTES = 3 * GIB, 6 * GIB, 9 * GIB, 12 * GIB
"""Free memory of a GPU that pages leave for CUDA graphs and for calls that none holds: with batches of
up to 4, of up to 8 (measured: 2 to 3 GB of graphs), of up to 16 (4 to 6), and of more (not measured)."""
SMALL_GPU_BYTES, LARGE_GPU_BYTES = 16 * GIB, 40 * GIB
"""Memory of a GPU from which turns have more."""
OWN_BYTES = 2 * GIB
"""Memory of a GPU that token2wav's process holds when it plans: context, weights, rests of loading."""


def work_bytes(rows: int, divisions: int = 1) -> int:
    """Memory of a GPU for captured calls of up to so many utterances, and for calls beside them.

    Args:
        divisions: of the GPU, each with calls of its own.
    """
    limits = {TINY_BATCH: TINY_WORK_BYTES, SMALL_BATCH: WORK_BYTES, MEDIUM_BATCH: MEDIUM_WORK_BYTES}
    return divisions * next((work for most, work in limits.items() if rows <= most), LARGE_WORK_BYTES)


def rows_on(total_bytes: int, most: int) -> int:
    """Utterances in a turn, at most ``most``: fewer where the memory is better spent on pages."""
    if total_bytes < LARGE_GPU_BYTES:
        return min(most, TINY_BATCH if total_bytes < SMALL_GPU_BYTES else SMALL_BATCH)
    return most


def unclaimed_bytes(total_bytes: int, reserve_gib: float) -> int:
    """Memory of a GPU beside what other processes take, before or after the pages are planned."""
    return total_bytes - int(reserve_gib * GIB) - OWN_BYTES


def room_for_pages(total_bytes: int, free_bytes: int, share: float, work: int) -> int:
    """Bytes: a share of the memory, and no more than the work leaves of what is free."""
    return min(int(share * total_bytes), max(0, free_bytes - work))


OTHERS_GIB = 1.0
"""Memory of a GPU for programs that no setting knows of: the driver, a desktop, another program."""
LEAST_SLOTS = 16
SECONDS_OF_A_SLOT = 6.5
"""Finished speech, prompts included, that pages should hold for each request: what utterances of all
lengths hold on average while they are in progress is 9, and not every request is as far."""


def with_carried_slots(
    given: TensorrtLlmSettings, token2wav: Token2WavSettings, machine: Machine
) -> TensorrtLlmSettings:
    """The section without ``auto``, with as many slots as the pages beside it can carry.

    Args:
        given: with ``auto``.
        token2wav: resolved.
    """
    lm = given.resolved(machine)
    gpu = _usable(machine.facts_of(gpu_number(lm.device)), token2wav.max_gpu_gib)
    if given.max_slots or gpu is None or not on_one_gpu(token2wav, lm):
        return lm
    while lm.max_slots > LEAST_SLOTS:
        if seconds_of_pages(gpu, lm, token2wav) >= SECONDS_OF_A_SLOT * lm.max_slots:
            break
        lm = given.replace(max_slots=max(LEAST_SLOTS, lm.max_slots // 2)).resolved(machine)
    return lm


def _usable(gpu: GpuFacts | None, max_gib: float) -> GpuFacts | None:
    """A GPU with no more memory than the settings let the server use."""
    return gpu if gpu is None or not max_gib else gpu._replace(gib=min(gpu.gib, max_gib))


def seconds_of_pages(
    gpu: GpuFacts, lm: TensorrtLlmSettings, token2wav: Token2WavSettings, divisions: int = 1
) -> float:
    """Seconds of finished speech that a GPU keeps beside the published networks, both resolved.

    Args:
        divisions: of the GPU that calls are captured for, two where it is divided by how many speak.
    """
    total = int(gpu.gib * GIB)
    work = work_bytes(rows_on(total, token2wav.most_batch), divisions)
    free = unclaimed_bytes(total, token2wav.gpu_reserve_gib or OTHERS_GIB + lm.gib_on(gpu))
    in_16_bits, in_8_bits = Layout(token2wav.checkpoint_dir).family.second_mib
    wide = 2 if token2wav.page_format == "float32" else 1
    second_mib = in_8_bits if token2wav.page_format == EIGHT_BIT_PAGES else wide * in_16_bits
    room = room_for_pages(total, free, token2wav.most_flow_memory, work)
    return room / 2**20 / second_mib if second_mib else float("inf")


def on_one_gpu(token2wav: Token2WavSettings, lm: TensorrtLlmSettings) -> bool:
    """Whether both compute on the same GPU."""
    return gpu_number(lm.device) is not None and gpu_number(lm.device) == gpu_number(token2wav.device)


def divide_one_gpu(lm: TensorrtLlmSettings, token2wav: Token2WavSettings) -> bool:
    """Whether the speech LM and token2wav divide a GPU between them: both compute on torch there."""
    return lm.engine == token2wav.backend == "torch" and on_one_gpu(token2wav, lm)
