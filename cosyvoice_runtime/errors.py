"""Errors a caller can act on; everything else is a bug and surfaces as it is."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)

STATUSES = (
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "UNAVAILABLE",
    "INTERNAL",
    "UNIMPLEMENTED",
    "ALREADY_EXISTS",
    "CANCELLED",
)
"""gRPC's names of the statuses that models answer with."""


SPEECH_LM, FLOW, VOCODER = "speech_lm", "flow", "vocoder"
SPEECH_TOKENIZER, SPEAKER_ENCODER = "speech_tokenizer", "speaker_encoder"
OUTPUTS = {
    SPEECH_LM: "the logits",
    FLOW: "the mel",
    VOCODER: "the samples",
    SPEECH_TOKENIZER: "what the speech tokens are made of",
    SPEAKER_ENCODER: "the speaker embedding",
}
"""Output of each stage of the networks, for reading."""


CHECK_TELLS = "./run.sh check names the layer"


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

    def at(self, field: str) -> InvalidInput:
        """The same error of another field."""
        moved = InvalidInput(field, "", self.limit)
        moved.value, moved.args = self.value, (f"{field}: {self.value} is not accepted; {self.limit}",)
        return moved


class NotFoundError(CosyVoiceError):
    """A request refers to something that isn't here, or not any more.

    Attributes:
        field: name of the input that refers to it.
    """

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field = field
        super().__init__(f"{field}: {shorten(value)} is unknown; {remedy}")


class OverloadedError(CosyVoiceError):
    """The work is refused because a limit on work in progress is reached; it may be sent again later.

    Attributes:
        retry_after_s: when that makes sense, also at the end of the text: ``...; try again in 2.5 s``. None
            when nobody knows.
    """

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message if retry_after_s is None else f"{message}; try again in {retry_after_s:g} s")


class WithdrawnError(CosyVoiceError):
    """The work was called off before it was done."""


class ClientGoneError(Exception):
    """Nobody reads the responses any more; stop working on the request."""


class StageError(CosyVoiceError):
    """Another model answered with an error, which is passed on to the client.

    Attributes:
        status: one of :data:`STATUSES`.
    """

    def __init__(self, message: str, status: str) -> None:
        super().__init__(message)
        self.status = status if status in STATUSES else "INTERNAL"


class StageLostError(StageError):
    """Another model's process has ended; what it was asked may be asked again when it is back."""

    def __init__(self, model: str) -> None:
        super().__init__(f"{model} is being started again; try again later", "UNAVAILABLE")


class StageSilentError(CosyVoiceError):
    """Another model did not answer in time."""


class NotFiniteError(CosyVoiceError):
    """A network's output holds NaN or infinity, and nothing of it is passed on.

    Attributes:
        stage: the first one whose output does, one of :data:`OUTPUTS`.
    """

    def __init__(self, stage: str, remedy: str = "") -> None:
        self.stage = stage
        told = f"{stage}: NaN or infinity in {OUTPUTS[stage]}"
        super().__init__(f"{told}; {remedy}" if remedy else told)


class CheckpointError(CosyVoiceError):
    """A checkpoint file is missing, damaged, or holds other tensors than its configuration asks for."""


class StorageError(CosyVoiceError):
    """A file can't be written or read: the disk is full, or a directory can't be used."""


class StorageAwayError(StorageError):
    """The bucket of the voices doesn't answer now."""

    def __init__(self) -> None:
        super().__init__("the bucket of the voices can't be reached; try again later")


class EngineFileError(CosyVoiceError):
    """An engine is missing, was built from something else than what is to be served, or can't be run here."""


def status_of(error: BaseException) -> str:
    """The one of :data:`STATUSES` that an exception is answered with."""
    if isinstance(error, StageError):
        return error.status
    if isinstance(error, InvalidInput):
        return "INVALID_ARGUMENT"
    if isinstance(error, NotFoundError):
        return "NOT_FOUND"
    if isinstance(error, WithdrawnError):
        return "CANCELLED"
    away = isinstance(error, OverloadedError | StageSilentError | StorageAwayError)
    return "UNAVAILABLE" if away else "INTERNAL"


def with_status(status: str, message: str) -> str:
    """The text of an error that goes through a stream: Triton keeps no status of those."""
    return f"{status}: {message}"


def split_status(message: str) -> tuple[str, str]:
    """Status and message of :func:`with_status`; INTERNAL for a text of anybody else, whatever it says."""
    status, separator, rest = message.partition(": ")
    return (status, rest) if separator and status in STATUSES else ("INTERNAL", message)


PASSED_ON = (InvalidInput, NotFoundError, OverloadedError, StageError, StorageAwayError)
"""Errors whose text says everything."""


def message_of(error: BaseException, model: str, request: str = "") -> str:
    """The text of an error as a client reads it; an unexpected exception is logged in full."""
    if isinstance(error, PASSED_ON):
        return str(error)
    # A CheckpointError names files of this machine, which clients need not know.
    if isinstance(error, CosyVoiceError) and not isinstance(error, CheckpointError):
        return f"{model}: {error}"
    logger.error("unexpected failure in %s, request %s", model, request or "-", exc_info=error)
    return f"{model}: internal error ({type(error).__name__}); the server's log has the details"


def shorten(value: object, length: int = 80) -> str:
    """``repr`` of a value, cut in the middle to ``length`` characters."""
    text = repr(value)
    if len(text) <= length:
        return text
    half = (length - 3) // 2
    return f"{text[:half]}...{text[-half:]}"
