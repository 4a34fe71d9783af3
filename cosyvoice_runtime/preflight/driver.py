"""The GPU and its driver."""

from __future__ import annotations

from collections.abc import Iterator

from cosyvoice_runtime.nvidia import cuda_of_driver
from cosyvoice_runtime.preflight.commands import ask
from cosyvoice_runtime.preflight.container import Container, dotted
from cosyvoice_runtime.preflight.outcome import Outcome, failed, passed, unchecked

QUERY = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
TIMEOUT_S = 60.0


def check_driver(container: Container) -> Iterator[Outcome]:
    """The driver is new enough, or NVIDIA's compatibility package stands in for a newer one.

    The package is a ``libcuda`` in the container, for data-centre GPUs; it answers with its own CUDA version
    where it is used (NVIDIA, "CUDA Compatibility", forward compatibility).
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
    remedy = f"update it to {needed}" + (f", or {container.older}" if container.older else "")
    return failed("driver", f"{driver} supports CUDA {dotted(cuda)}: {remedy}")
