"""Kernels run on the CPU where there is no GPU; Triton must know before any kernel is defined."""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton", reason="the kernels are written in the Triton language")
