"""How a request ended, for the metrics."""

from __future__ import annotations

from cosyvoice_runtime.errors import InvalidInput, NotFoundError, OverloadedError
from cosyvoice_runtime.serving.speech.speech_metrics import Ending
from cosyvoice_runtime.serving.triton.calls import CallError
from cosyvoice_runtime.serving.triton.reply import ClientGoneError


def ending_of(error: BaseException | None) -> Ending:
    """The ending of a request that raised this, or nothing."""
    if error is None:
        return Ending.COMPLETED
    if isinstance(error, ClientGoneError):
        return Ending.CANCELLED
    status = error.status if isinstance(error, CallError) else ""
    if isinstance(error, OverloadedError) or status == "UNAVAILABLE":
        return Ending.REFUSED
    if isinstance(error, InvalidInput | NotFoundError) or status == "INVALID_ARG":
        return Ending.INVALID
    return Ending.FAILED
