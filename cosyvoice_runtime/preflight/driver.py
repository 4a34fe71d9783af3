"""The GPU and its driver."""

from __future__ import annotations

from collections.abc import Iterator

from cosyvoice_runtime.nvidia import OLDEST_DRIVERS, cuda_of_driver
from cosyvoice_runtime.preflight.commands import ask
from cosyvoice_runtime.preflight.container import Container, dotted
from cosyvoice_runtime.preflight.outcome import Outcome, failed, passed, unchecked, warned

QUERY = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
TIMEOUT_S = 60.0


def check_driver(container: Container) -> Iterator[Outcome]:
    """The driver is the container's own, a newer one, or one that may stand in for it.

    NVIDIA's "CUDA Compatibility" says which. A driver of the same major version of CUDA runs the container
    but can't compile the newer CUDA's PTX (minor version compatibility). The package for data-centre GPUs,
    a ``libcuda`` in the container, answers with its own CUDA where it is used (forward compatibility).
    """
    answer = ask(QUERY, TIMEOUT_S)
    if answer.failure:
        yield failed("gpu", f"nvidia-smi {answer.failure}; the container needs --gpus all")
        return
    gpus = [[field.strip() for field in line.split(",")] for line in answer.output.strip().splitlines()]
    yield passed("gpu", "; ".join(f"{name}, {memory}" for name, _, memory in gpus))
    yield _judge(gpus[0][1], cuda_of_driver(), container)


def _judge(driver: str, cuda: tuple[int, int] | None, container: Container) -> Outcome:
    needed = dotted(container.driver)
    if tuple(map(int, driver.split(".")[:2])) >= container.driver:
        return passed("driver", driver)
    if cuda is None:
        return unchecked("driver", f"{driver} is older than {needed}, and there is no libcuda to ask")
    if cuda >= container.cuda:
        return passed("driver", f"{driver}, with a compatibility package for CUDA {dotted(cuda)}")
    facts = f"{driver} supports CUDA {dotted(cuda)}, {container.image} has {dotted(container.cuda)}"
    oldest = OLDEST_DRIVERS[container.cuda[0]]
    if cuda[0] == container.cuda[0]:
        known = f"runs by minor version compatibility from {oldest} on, but for PTX compiled at run time"
        return warned("driver", f"{facts}: {known}; {needed} has all of it")
    remedy = f"update it to {oldest} or newer, at best to {needed}"
    return failed("driver", f"{facts}: {remedy}, or on a data-centre GPU use NVIDIA's compatibility package")
