"""Versions of Python and of a container's libraries, against the pinned ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from cosyvoice_runtime.preflight.container import Container, dotted
from cosyvoice_runtime.preflight.modules import attempt
from cosyvoice_runtime.preflight.outcome import Outcome, failed, judged, warned


def check_versions(container: Container) -> Iterator[Outcome]:
    """Python's and each library's."""
    yield _compared("python", dotted(sys.version_info[:2]), dotted(container.python), container)
    for name, wanted in container.libraries.items():
        module, failure = attempt(name)
        if failure:
            yield failed(name, f"{failure}; run this in {container.image}")
        else:
            yield _compared(name, module.__version__.partition("+")[0], wanted, container)


def check_cuda(container: Container) -> Iterator[Outcome]:
    """The CUDA that torch was built for."""
    module, failure = attempt("torch")
    if failure:
        yield failed("cuda of torch", failure)
    else:
        yield _of_cuda(str(module.version.cuda), container)


def _of_cuda(found: str, container: Container) -> Outcome:
    """Another CUDA of the same major version is compatible."""
    wanted = dotted(container.cuda)
    if found != wanted and found.partition(".")[0] == str(container.cuda[0]):
        return warned("cuda of torch", f"{found}, but written for {wanted} ({container.image})")
    return _compared("cuda of torch", found, wanted, container)


def _compared(name: str, found: str, wanted: str, container: Container) -> Outcome:
    problems = [] if found == wanted else [f"{found}, but written for {wanted} ({container.image})"]
    return judged(name, problems, found)
