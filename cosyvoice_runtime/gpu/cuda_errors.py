"""CUDA errors after which a process can't use its GPU, and the end of that process."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator

logger = logging.getLogger(__name__)

EXIT_STATUS = 70
"""EX_SOFTWARE of sysexits.h."""
LAST_WORDS_S = 2.0
"""The longest time for sending errors before the process ends, because a reader may be stuck."""
CUDA_ERROR = re.compile(
    r"CUDA (driver |runtime )?error|cudaError|CUDA_ERROR_|Triton Error \[CUDA\]|CUBLAS_STATUS_|CUDNN_STATUS_"
)
"""The names of CUDA errors in torch, Triton's kernels, cuBLAS and cuDNN."""
HARMLESS = re.compile(
    r"out of memory|MemoryAllocation|OUT_OF_MEMORY|STATUS_ALLOC_FAILED|STATUS_NOT_INITIALIZED"
    r"|invalid (argument|configuration argument|resource handle)"
    r"|STATUS_INVALID_VALUE|STATUS_NOT_SUPPORTED|STATUS_BAD_PARAM"
    r"|too many resources requested|no kernel image|not supported|stream is capturing|error during capture"
)
"""Errors that refuse one call and leave the context usable (CUDA runtime API, ``cudaError_t``). All others,
such as an illegal address or a failed launch, are returned by every later call of the process."""


def is_fatal(error: BaseException) -> bool:
    """Whether the process's CUDA context is lost, so that every later call on the GPU fails, too.

    The errors that this one was raised from count as well. Memory that ran out is not fatal.
    """
    return any(_loses_context(each) for each in _with_causes(error))


def end_process(reason: str, leave: Callable[[int], object] = os._exit) -> None:
    """Log the reason and end this process at once, without cleaning up: destructors would call the GPU.

    Whoever supervises the process starts it anew. Answer the requests that wait before.
    """
    logger.critical("this process ends: %s", reason)
    for handler in logging.getLogger().handlers:
        handler.flush()
    leave(EXIT_STATUS)


def _loses_context(error: BaseException) -> bool:
    if not isinstance(error, RuntimeError):
        return False
    first_line = str(error).partition("\n")[0]
    return bool(CUDA_ERROR.search(first_line)) and not HARMLESS.search(first_line)


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
