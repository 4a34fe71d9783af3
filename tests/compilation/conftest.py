"""Kernels compiled without a GPU, where the Triton language is installed and does not interpret them."""

from __future__ import annotations

import importlib.util
import os

LEFT_OUT = importlib.util.find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") == "1"
if LEFT_OUT:
    collect_ignore_glob = ["test_*forms.py", "test_tuning.py"]


def pytest_report_header() -> list[str]:
    return ["most of tests/compilation is left out: triton is not installed"] if LEFT_OUT else []
