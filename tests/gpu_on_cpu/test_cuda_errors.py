"""Which errors end a process, and how it ends."""

from __future__ import annotations

import logging

import pytest
import torch

from cosyvoice_runtime.gpu.cuda_errors import EXIT_STATUS, end_process, is_fatal

ILLEGAL_ADDRESS = (
    "CUDA error: an illegal memory access was encountered\n"
    "Search for `cudaErrorIllegalAddress' for more information.\n"
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1"
)


@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError(ILLEGAL_ADDRESS),
        RuntimeError(ILLEGAL_ADDRESS),
        RuntimeError("CUDA error: device-side assert triggered"),
        RuntimeError("CUDA error: unspecified launch failure"),
        RuntimeError("CUDA driver error: an illegal memory access was encountered"),
        RuntimeError("Triton Error [CUDA]: misaligned address"),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    ],
    ids=lambda error: str(error).partition("\n")[0],
)
def test_lost_context_is_fatal_and_stays_so_when_raised_again(error):
    assert is_fatal(error)
    with pytest.raises(ValueError, match="a turn failed") as wrapped:
        raise ValueError("a turn failed") from error
    assert is_fatal(wrapped.value)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        torch.AcceleratorError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("CUDA error: invalid configuration argument"),
        RuntimeError("The size of tensor a (3) must match the size of tensor b (4)"),
        ValueError("a text that speaks of CUDA error: an illegal memory access"),
        KeyError("CUDA error"),
    ],
    ids=str,
)
def test_error_that_leaves_the_gpu_usable_is_not_fatal(error):
    assert not is_fatal(error)


def test_errors_that_cause_each_other_are_looked_at_once():
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert not is_fatal(first)


def test_process_ends_with_its_reason_in_the_log(caplog):
    left = []
    with caplog.at_level(logging.CRITICAL):
        end_process("the GPU is lost", left.append)
    assert left == [EXIT_STATUS]
    assert "the GPU is lost" in caplog.text
