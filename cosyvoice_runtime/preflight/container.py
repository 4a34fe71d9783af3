"""What an engine's container brings: versions of Python, CUDA and libraries, and the GPU with its driver."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cosyvoice_runtime.gpu.nvidia import OLDEST_DRIVERS, cuda_of_driver
from cosyvoice_runtime.preflight.outcome import Outcome, failed, judged, passed, unchecked, warned

Version = tuple[int, int]
QUERY = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
TIMEOUT_S = 60.0
SHOWN_CHARACTERS = 200


@dataclass(frozen=True)
class Container:
    """A pinned image of NVIDIA's.

    Attributes:
        image: its name and tag.
        python: version of its interpreter.
        cuda: version of its CUDA.
        driver: the image's own, with all of this CUDA. Older ones of the same CUDA 13 or 12 run it too, by
            NVIDIA's minor version compatibility.
        libraries: versions of its modules, by name; a build's own label after ``+`` doesn't count.
    """

    image: str
    python: Version
    cuda: Version
    driver: Version
    libraries: Mapping[str, str]


def check_versions(container: Container) -> Iterator[Outcome]:
    """Python and each library have the pinned versions."""
    yield _compared("python", dotted(sys.version_info[:2]), dotted(container.python), container)
    for name, wanted in container.libraries.items():
        module, failure = attempt(name)
        if failure:
            yield failed(name, f"{failure}; run this in {container.image}")
        else:
            yield _compared(name, module.__version__.partition("+")[0], wanted, container)


def check_cuda(container: Container) -> Iterator[Outcome]:
    """torch is built for the container's CUDA; another of the same major version is compatible."""
    module, failure = attempt("torch")
    if failure:
        yield failed("cuda of torch", failure)
        return
    found, wanted = str(module.version.cuda), dotted(container.cuda)
    if found != wanted and found.partition(".")[0] == str(container.cuda[0]):
        yield warned("cuda of torch", f"{found}, but written for {wanted} ({container.image})")
    else:
        yield _compared("cuda of torch", found, wanted, container)


def _compared(name: str, found: str, wanted: str, container: Container) -> Outcome:
    problems = [] if found == wanted else [f"{found}, but written for {wanted} ({container.image})"]
    return judged(name, problems, found)


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


def _judge(driver: str, cuda: Version | None, container: Container) -> Outcome:
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


def dotted(version: Version) -> str:
    return ".".join(map(str, version))


def attempt(name: str) -> tuple[Any, str]:
    """A module, or why it can't be imported: native libraries fail to load in ways of their own."""
    try:
        return importlib.import_module(name), ""
    except Exception as error:
        return None, f"{name} can't be imported ({type(error).__name__}: {error})"


class Answer(NamedTuple):
    """
    Attributes:
        output: empty unless the program ended with status 0.
        failure: what the program did instead, as the end of a sentence; empty where it answered.
    """

    output: str
    failure: str


def ask(command: Sequence[str], timeout_s: float) -> Answer:
    """Run a program that may be missing, fail, or never end: a driver that hangs blocks whoever asks it."""
    try:
        program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except FileNotFoundError:
        return Answer("", "is not installed")
    try:
        output, errors = program.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        program.kill()  # and not waited for: what waits for a driver in the kernel can't be killed
        return Answer("", f"has not answered within {timeout_s:g} s")
    if program.returncode:
        told = (errors or output).strip()[-SHOWN_CHARACTERS:]
        return Answer("", f"ends with status {program.returncode}: {told}")
    return Answer(output, "")
