"""Exceptions as errors that a client reads: a sentence and a status, no traceback, no path."""

from __future__ import annotations

import logging

import triton_python_backend_utils as pb_utils

from cosyvoice_runtime.errors import (
    CheckpointError,
    CosyVoiceError,
    InvalidInput,
    NotFoundError,
    OverloadedError,
)
from cosyvoice_runtime.serving.triton.calls import CallError

logger = logging.getLogger(__name__)


def fault(error: BaseException, model: str) -> pb_utils.TritonError:
    """The error to send for an exception; one that nobody raised on purpose is logged in full."""
    if isinstance(error, CallError):
        code = getattr(pb_utils.TritonError, error.status, pb_utils.TritonError.INTERNAL)
        return pb_utils.TritonError(str(error), code)
    if isinstance(error, InvalidInput):
        return pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
    if isinstance(error, NotFoundError):
        return pb_utils.TritonError(str(error), pb_utils.TritonError.NOT_FOUND)
    if isinstance(error, OverloadedError):
        return pb_utils.TritonError(str(error), pb_utils.TritonError.UNAVAILABLE)
    # A CheckpointError names files of this machine, which clients need not know.
    if isinstance(error, CosyVoiceError) and not isinstance(error, CheckpointError):
        return pb_utils.TritonError(f"{model}: {error}", pb_utils.TritonError.INTERNAL)
    logger.error("unexpected failure in %s", model, exc_info=error)
    message = f"{model}: internal error ({type(error).__name__}); the server's log has the details"
    return pb_utils.TritonError(message, pb_utils.TritonError.INTERNAL)
