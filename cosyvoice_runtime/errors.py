"""Errors a caller can act on; everything else is a bug and surfaces as it is."""

from __future__ import annotations


class CosyVoiceError(Exception):
    """Base of every error this library raises on purpose."""


class InvalidInput(CosyVoiceError):
    """A request holds something that can't be served.

    Attributes:
        field: name of the offending input, as the caller knows it (``reference_wav``).
        value: what was given, shortened for reading.
        limit: what would have been accepted.
    """

    def __init__(self, field: str, value: object, limit: str) -> None:
        self.field = field
        self.value = shorten(value)
        self.limit = limit
        super().__init__(f"{field}: {self.value} is not accepted; {limit}")


class NotFoundError(CosyVoiceError):
    """A request refers to something that isn't here, or not any more.

    Attributes:
        field: name of the input that refers to it.
    """

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field = field
        super().__init__(f"{field}: {shorten(value)} is unknown; {remedy}")


class OverloadedError(CosyVoiceError):
    """The work is refused because a limit on work in progress is reached; it may be sent again later."""


class CheckpointError(CosyVoiceError):
    """A checkpoint file is missing, damaged, or holds other tensors than its configuration asks for."""


class EngineFileError(CosyVoiceError):
    """An engine is missing, was built from something else than what is to be served, or can't be run here."""


def shorten(value: object, length: int = 80) -> str:
    """``repr`` of a value, cut in the middle to ``length`` characters."""
    text = repr(value)
    if len(text) <= length:
        return text
    half = (length - 3) // 2
    return f"{text[:half]}...{text[-half:]}"
