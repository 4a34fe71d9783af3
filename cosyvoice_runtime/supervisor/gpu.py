"""The GPU that a rendered model repository computes on, or doesn't though the machine has one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from cosyvoice_runtime.nvidia import KERNEL_MODULE, Obstacle, has_driver
from cosyvoice_runtime.settings.gpu_asked import tell_obstacle
from cosyvoice_runtime.settings.model import CUDA
from cosyvoice_runtime.settings.rendered import read_parameters
from cosyvoice_runtime.settings.tensorrt_llm import TensorrtLlmSettings
from cosyvoice_runtime.settings.token2wav import Token2WavSettings

NETWORKS = (TensorrtLlmSettings.name, Token2WavSettings.name)
ANSWER_S = 120.0
"""For torch's import and the driver, which is not waited for any longer."""


def tell_unused_gpu(repository: Path, python: Path) -> None:
    """Log what keeps torch from the GPU where all networks of a repository are on the CPU.

    A network that is on a GPU tells by itself why it can't be, and does not start.

    Args:
        python: interpreter of the models, which is asked: torch would stay in this process.
    """
    here = has_driver() or KERNEL_MODULE.exists()
    if here and not any(_is_on_gpu(repository / model) for model in NETWORKS):
        tell_obstacle(_asked(python))


def _is_on_gpu(model: Path) -> bool:
    parameters = read_parameters(model) if model.exists() else {}
    return parameters.get("device", {}).get("string_value", "").startswith(CUDA)


def _asked(python: Path) -> Obstacle | None:
    try:
        answer = subprocess.run(
            [python, "-m", "cosyvoice_runtime.nvidia"],
            capture_output=True,
            text=True,
            check=True,
            timeout=ANSWER_S,
        )
        facts = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return Obstacle(f"NVIDIA's driver is here, but {python} could not be asked about it ({error})")
    return facts and Obstacle(**facts)
