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
    StageError,
    status_of,
    with_status,
)

logger = logging.getLogger(__name__)

PASSED_ON = (InvalidInput, NotFoundError, OverloadedError, StageError)
"""Errors whose text says everything."""
CODE_NAMES = {"INVALID_ARGUMENT": "INVALID_ARG", "UNIMPLEMENTED": "UNSUPPORTED"}
"""Triton's names of gRPC's statuses, where they differ."""


def fault(error: BaseException, model: str) -> pb_utils.TritonError:
    """The error to send for an exception of a model that answers once."""
    return _triton_error(status_of(error), _message(error, model))


def stream_fault(error: BaseException, model: str) -> pb_utils.TritonError:
    """The same for a stream, whose reader finds the status at the beginning of the text."""
    status = status_of(error)
    return _triton_error(status, with_status(status, _message(error, model)))


def _triton_error(status: str, message: str) -> pb_utils.TritonError:
    code = getattr(pb_utils.TritonError, CODE_NAMES.get(status, status), pb_utils.TritonError.INTERNAL)
    return pb_utils.TritonError(message, code)


def _message(error: BaseException, model: str) -> str:
    """The text; an exception that nobody raised on purpose is logged in full."""
    if isinstance(error, PASSED_ON):
        return str(error)
    # A CheckpointError names files of this machine, which clients need not know.
    if isinstance(error, CosyVoiceError) and not isinstance(error, CheckpointError):
        return f"{model}: {error}"
    logger.error("unexpected failure in %s", model, exc_info=error)
    return f"{model}: internal error ({type(error).__name__}); the server's log has the details"
