"""Building an engine with NVIDIA's ``trtllm-build``: its options and their reasons."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from cosyvoice_runtime.checkpoint.checksums import sha256_of
from cosyvoice_runtime.checkpoint.fresh_directory import renew_directory
from cosyvoice_runtime.errors import EngineFileError
from cosyvoice_runtime.gpu.nvidia import Gpu, present_gpu
from cosyvoice_runtime.lm.engines.tensorrt_llm import TRTLLM_CONTAINER, library_versions
from cosyvoice_runtime.manifest import Manifest, stale_reasons
from cosyvoice_runtime.settings.model import MANIFEST

MODEL_FILE = Path(__file__).with_name("speech_model.py")
MODEL_CLASS = "SpeechQwenForCausalLM"
"""Model class of the speech layout; its file can be imported in the container only."""
TIMING_CACHE = "timing.cache"
BIAS_FILE = "embedding_bias.safetensors"
"""Bias of the merged layout, which the stock model lacks; it is added to the logits of every request."""
LEAST_FOR_FP8 = (8, 9)
"""Compute capability of Ada, from which TensorRT-LLM's support matrix has FP8; Hopper's is 9.0."""


@dataclass(frozen=True)
class Flag:
    """``--name value`` and the reason for it."""

    name: str
    value: str
    why: str


@dataclass(frozen=True)
class BuildOptions:
    """Sizes of an engine.

    Attributes:
        max_batch_size: requests decoded together; a server may use fewer.
        max_seq_len: most positions of one request: text, prompt speech and new speech.
        max_num_tokens: most positions computed in one step, over all requests.
    """

    max_batch_size: int = 64
    max_seq_len: int = 4096
    max_num_tokens: int = 4096


def shape_flags(options: BuildOptions) -> list[Flag]:
    """Sizes of the engine."""
    return [
        Flag(
            "max_batch_size",
            str(options.max_batch_size),
            "streams of one GPU; a decode step at 64 costs little more than one at 16",
        ),
        Flag("max_beam_width", "1", "speech is sampled, never searched"),
        Flag(
            "max_seq_len",
            str(options.max_seq_len),
            "the default would be the network's 32,768 positions, for which no speech has a use",
        ),
        Flag(
            "max_input_len",
            str(options.max_seq_len),
            "the default of 1,024 would refuse a long reference; max_seq_len is the only limit",
        ),
        Flag(
            "max_num_tokens",
            str(options.max_num_tokens),
            "one longest prompt, or several usual ones; more would hold up running streams while "
            "prompts are computed, and cost memory for activations",
        ),
    ]


def kernel_flags(dtype: str, weight_only: str = "none") -> list[Flag]:
    """Plugins and features."""
    gemm = Flag("gemm_plugin", dtype, "NVIDIA's advice for float16 and bfloat16 matrices")
    if weight_only == "fp8":
        gemm = Flag("gemm_plugin", "disable", "NVIDIA's advice for FP8 matrices: TensorRT's own kernels")
    return [
        Flag("gpt_attention_plugin", dtype, "in-flight batching works through this plugin alone"),
        Flag("remove_input_padding", "enable", "in-flight batching packs requests without padding"),
        Flag("kv_cache_type", "paged", "the pool that in-flight requests share"),
        Flag("tokens_per_block", "32", "grain of the pool and of reuse; a transcript has 10 to 60 tokens"),
        Flag("context_fmha", "enable", "prompts in one fused kernel"),
        Flag(
            "use_paged_context_fmha", "enable", "a prompt may start with blocks that another one has filled"
        ),
        gemm,
        Flag("multiple_profiles", "enable", "kernels chosen for few tokens as well as for many"),
        Flag("logits_dtype", "float32", "the embedding bias has to have the logits' dtype"),
    ]


def model_flags(layout: str) -> list[Flag]:
    """The model class, where it is this library's own."""
    if layout == "merged":
        return []
    why = "the stock Qwen2 has neither a bias on the head nor an embedding longer than it"
    return [
        Flag("model_cls_file", str(MODEL_FILE), why),
        Flag("model_cls_name", MODEL_CLASS, why),
    ]


def build_flags(options: BuildOptions, layout: str, dtype: str, weight_only: str = "none") -> list[Flag]:
    """All flags but the directories and the timing cache."""
    return [*shape_flags(options), *kernel_flags(dtype, weight_only), *model_flags(layout)]


def command(checkpoint_dir: Path, out_dir: Path, timing_cache: Path, flags: list[Flag]) -> list[str]:
    """Arguments of the process.

    The timing cache is read when it exists and written after the build: without these flags it would be
    ``model.cache`` in the working directory.
    """
    directories = [
        ("checkpoint_dir", str(checkpoint_dir)),
        ("output_dir", str(out_dir)),
        ("input_timing_cache", str(timing_cache)),
        ("output_timing_cache", str(timing_cache)),
    ]
    pairs = [*directories, *((flag.name, flag.value) for flag in flags)]
    return ["trtllm-build", *(text for name, value in pairs for text in (f"--{name}", value))]


def build(
    checkpoint_dir: str | Path,
    engine_dir: str | Path,
    options: BuildOptions,
    before: Callable[[], None] = lambda: None,
) -> list[str]:
    """Build an engine from a converted checkpoint unless ``engine_dir`` holds the same already.

    The output of ``trtllm-build`` goes to this process's own. ``engine_dir`` appears whole or not at all;
    the timing cache lies in the folder above it.

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
        values["model_cls_file"] = sha256_of(MODEL_FILE)  # The directory makes no difference.
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
            f"{arguments[0]} is not installed; NVIDIA's container {TRTLLM_CONTAINER} has it"
        ) from error
    if status:
        raise EngineFileError(
            f"{arguments[0]} failed with status {status}; its own output says why "
            "(python -m cosyvoice_runtime.preflight checks versions, flags and weights)"
        )


def _add_bias(checkpoint: Path, engine: Path) -> None:
    if (checkpoint / BIAS_FILE).is_file():
        shutil.copyfile(checkpoint / BIAS_FILE, engine / BIAS_FILE)
