"""Versions of Python, NVIDIA's libraries and CUDA, against the pinned container."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

from cosyvoice_runtime.preflight.modules import attempt
from cosyvoice_runtime.preflight.outcome import Outcome, failed, judged
from cosyvoice_runtime.serving.lm.engines.tensorrt_llm.pinned import CONTAINER, CUDA, LIBRARIES, PYTHON


def check_versions() -> Iterator[Outcome]:
    yield _compared("python", ".".join(map(str, sys.version_info[:2])), ".".join(map(str, PYTHON)))
    yield _compared("cuda of torch", str(torch.version.cuda), ".".join(map(str, CUDA)))
    for name, wanted in LIBRARIES.items():
        module, failure = attempt(name)
        if failure:
            yield failed(name, f"{failure}; run this in {CONTAINER}")
        else:
            yield _compared(name, module.__version__, wanted)


def _compared(name: str, found: str, wanted: str) -> Outcome:
    problems = [] if found == wanted else [f"{found}, but written for {wanted} ({CONTAINER})"]
    return judged(name, problems, found)
