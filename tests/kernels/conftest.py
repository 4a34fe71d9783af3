"""Kernels run on the CPU where there is no GPU; Triton must know before any kernel is defined.

Where the Triton language is not installed (641 MB; it comes with torch for CUDA), the tests are left out, and
the run says so.
"""

from __future__ import annotations

import importlib.util
import os

import torch

MISSING = importlib.util.find_spec("triton") is None

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
if MISSING:
    collect_ignore_glob = ["test_*.py"]


def pytest_report_header() -> list[str]:
    return ["tests/kernels is left out: triton is not installed"] if MISSING else []
