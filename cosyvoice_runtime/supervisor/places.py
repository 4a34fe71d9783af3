"""The places of a machine's servers: one for each GPU, unless settings say otherwise."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.gpu import nvidia
from cosyvoice_runtime.gpu.nvidia import VisibleGpu
from cosyvoice_runtime.settings.model import gpu_number
from cosyvoice_runtime.settings.repository import CONFIGURATION, read_parameter
from cosyvoice_runtime.settings.server import EVERY_GPU

logger = logging.getLogger(__name__)

FIELD = "server.gpus"


@dataclass(frozen=True)
class ServerPlace:
    """Where one of several servers runs.

    Attributes:
        name: of the server in log lines; empty for one that is alone.
        variables: environment variables of its processes.
        servers: servers of the machine.
    """

    name: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    servers: int = 1


def places_of(chosen: tuple[str, ...], repository: Path, environment: Mapping[str, str]) -> list[ServerPlace]:
    """The places that a setting chooses for the servers of a rendered model repository.

    Models that name another GPU than the first, or none, are one server.

    Args:
        chosen: ``server.gpus``.

    Raises:
        InvalidInput: a GPU is chosen that is not there, or that the models do not use.
    """
    numbers = _numbers(repository)
    if numbers != {0}:
        if chosen != EVERY_GPU:
            used = "the CPU" if not numbers else "GPUs " + ", ".join(map(str, sorted(numbers)))
            limit = f"all is expected, because the models of {repository} are rendered for {used}"
            raise InvalidInput(FIELD, ",".join(chosen), limit)
        return [ServerPlace()]
    visible = nvidia.visible_gpus(environment)
    gpus = visible if chosen == EVERY_GPU else _chosen(chosen, visible)
    if chosen == EVERY_GPU and len(gpus) < 2:
        if not gpus:
            logger.info("nvidia-smi lists no GPU, so there is one server")
        return [ServerPlace()]
    names = [f"server {number} (GPU {gpu.number or gpu.uuid})" for number, gpu in enumerate(gpus, 1)]
    return [
        ServerPlace(name if len(gpus) > 1 else "", {nvidia.VISIBLE: gpu.uuid}, len(gpus))
        for name, gpu in zip(names, gpus, strict=True)
    ]


def _numbers(repository: Path) -> set[int]:
    """The numbers of the GPUs that models of a repository name."""
    models = [path.parent for path in repository.glob(f"*/{CONFIGURATION}")]
    devices = ",".join(read_parameter(model, "device") for model in models).split(",")
    return {number for device in devices if (number := gpu_number(device)) is not None}


def _chosen(chosen: tuple[str, ...], visible: list[VisibleGpu]) -> list[VisibleGpu]:
    gpus = [next((gpu for gpu in visible if name in gpu), None) for name in chosen]
    known = [gpu for gpu in gpus if gpu is not None]
    if not known or len(set(known)) < len(chosen):
        there = ", ".join(" = ".join(dict.fromkeys(filter(None, gpu))) for gpu in visible)
        limit = f"all, or some of {there or 'none'}, which are here, each once"
        raise InvalidInput(FIELD, ",".join(chosen), limit)
    return known
