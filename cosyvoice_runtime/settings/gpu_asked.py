"""GPUs that settings ask for, on a machine whose GPU torch can't use."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.gpu.nvidia import Obstacle, obstacle
from cosyvoice_runtime.settings.model import CUDA
from cosyvoice_runtime.settings.rule import AUTO

if TYPE_CHECKING:
    from cosyvoice_runtime.settings.section import Section

logger = logging.getLogger(__name__)

ONNX = "onnx"
ON_GPUS_ALONE = {"engine": ("tensorrt_llm", "vllm"), "backend": ("tensorrt",), "kernels": ("fused",)}
"""Values that need a GPU, by field."""


def require_gpus(sections: Mapping[str, Section], found: Obstacle | None) -> None:
    """
    Args:
        found: what keeps torch from the GPU of this machine.

    Raises:
        InvalidInput: something does, and a setting asks for a GPU.
    """
    if found is None:
        return
    for name, section in sections.items():
        for field, text in _asked(section.placeholders()):
            raise InvalidInput(f"{name}.{field}", text, f"no GPU can be used: {found.text}")


def tell_unused_gpu(sections: Mapping[str, Section], found: Obstacle | None) -> None:
    """Log why networks that would be on the GPU of this machine are not, unless settings name the CPU."""
    if any(_is_open(section.placeholders()) for section in sections.values()):
        tell_obstacle(found)


def check_at_start(section: Section) -> None:
    """What a model does before it loads: the driver may be another than when stage 2 chose its device.

    Raises:
        InvalidInput: as :func:`require_gpus`.
    """
    found = obstacle()
    require_gpus({section.name: section}, found)
    tell_obstacle(found)


def tell_obstacle(found: Obstacle | None) -> None:
    """A warning, or a line of information where somebody chose it."""
    if found is not None:
        level = logging.INFO if found.chosen else logging.WARNING
        logger.log(level, "the CPU computes, not the GPU: %s", found.text)


def _is_open(texts: Mapping[str, str]) -> bool:
    """Whether a network's device follows the machine; ONNX Runtime has a CPU alone."""
    return texts.get("device") == AUTO and ONNX not in (texts.get("engine"), texts.get("backend"))


def _asked(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if texts.get("device", "").startswith(CUDA):
        yield "device", texts["device"]
    for field, values in ON_GPUS_ALONE.items():
        if texts.get(field) in values:
            yield field, texts[field]
