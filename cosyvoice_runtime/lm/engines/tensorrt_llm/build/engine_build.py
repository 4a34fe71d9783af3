"""Building an engine with NVIDIA's ``trtllm-build``."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from cosyvoice_runtime.checkpoint.fresh_directory import renew_directory
from cosyvoice_runtime.checkpoint.sha256 import sha256_of
from cosyvoice_runtime.errors import EngineFileError
from cosyvoice_runtime.lm.engines.tensorrt_llm.build.flags import (
    MODEL_FILE,
    BuildOptions,
    Flag,
    build_flags,
    command,
)
from cosyvoice_runtime.lm.engines.tensorrt_llm.conversion.convert import BIAS_FILE
from cosyvoice_runtime.lm.engines.tensorrt_llm.installed import CONTAINER, library_versions
from cosyvoice_runtime.manifest import Manifest, stale_reasons
from cosyvoice_runtime.settings.model import MANIFEST
from cosyvoice_runtime.tensorrt.cuda import Gpu, present_gpu

TIMING_CACHE = "timing.cache"
LEAST_FOR_FP8 = (8, 9)
"""Compute capability of Ada; Hopper's is 9.0. TensorRT-LLM's support matrix has FP8 from there on."""


def build(
    checkpoint_dir: str | Path,
    engine_dir: str | Path,
    options: BuildOptions,
    before: Callable[[], None] = lambda: None,
) -> list[str]:
    """Build an engine from a converted checkpoint unless ``engine_dir`` holds the same already.

    The output of ``trtllm-build`` goes to this process's own. ``engine_dir`` appears whole or not at all;
    the timing cache lies beside it.

    Args:
        before: called when there is something to build; nothing is if it raises.

    Returns:
        why it was built, a sentence each; empty if nothing had changed.

    Raises:
        EngineFileError: the checkpoint is not converted, a library or the GPU is missing, or the build
            failed.
        InvalidInput: ``engine_dir`` holds something else.
    """
    checkpoint, target = Path(checkpoint_dir).absolute(), Path(engine_dir)
    converted = Manifest.read(checkpoint)
    made = converted.options
    if made["weight_only"] == "fp8":
        _require_fp8(present_gpu())
    flags = build_flags(options, made["layout"], made["dtype"], made["weight_only"])
    wanted = _manifest(converted, options, flags)

    def write(building: Path) -> None:
        before()
        _run(command(checkpoint, building, target.absolute().with_name(TIMING_CACHE), flags))
        _add_bias(checkpoint, building)
        wanted.write(building)

    return renew_directory(target, lambda: stale_reasons(target, wanted), write, MANIFEST)


def _manifest(converted: Manifest, options: BuildOptions, flags: list[Flag]) -> Manifest:
    gpu = present_gpu()
    values = {flag.name: flag.value for flag in flags}
    if "model_cls_file" in values:
        values["model_cls_file"] = sha256_of(MODEL_FILE)  # where it lies makes no difference
    return Manifest(
        sources=converted.sources,
        tools=library_versions(),
        gpu=gpu.name,
        compute_capability=gpu.compute_capability,
        options={**converted.options, **asdict(options), "flags": values},
    )


def _require_fp8(gpu: Gpu) -> None:
    if tuple(map(int, gpu.compute_capability.split("."))) < LEAST_FOR_FP8:
        raise EngineFileError(
            f"{gpu.name} has compute capability {gpu.compute_capability} and no FP8, which needs "
            f"{'.'.join(map(str, LEAST_FOR_FP8))}: another tensorrt_llm.weight_only is needed"
        )


def _run(arguments: list[str]) -> None:
    try:
        status = subprocess.run(arguments).returncode
    except FileNotFoundError as error:
        raise EngineFileError(
            f"{arguments[0]} is not installed; NVIDIA's container {CONTAINER} has it"
        ) from error
    if status:
        raise EngineFileError(
            f"{arguments[0]} failed with status {status}; its own output says why "
            "(python -m cosyvoice_runtime.preflight checks versions, flags and weights)"
        )


def _add_bias(checkpoint: Path, engine: Path) -> None:
    if (checkpoint / BIAS_FILE).is_file():
        shutil.copyfile(checkpoint / BIAS_FILE, engine / BIAS_FILE)
