"""The models ``audio_tokenizer`` and ``speaker_embedding``: one reference in, one tensor out, in batches."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import triton_python_backend_utils as pb_utils

from cosyvoice_runtime.arrays import Array
from cosyvoice_runtime.audio.audio import EXTRACTOR_SAMPLE_RATE, Audio, reference_audio
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.errors import SPEAKER_ENCODER, SPEECH_TOKENIZER, InvalidInput, OverloadedError
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.metrics.metrics import RequestCount
from cosyvoice_runtime.onnx.memory import give_back_heap
from cosyvoice_runtime.serving.not_finite import DAMAGED, NotFiniteCount
from cosyvoice_runtime.serving.triton.request import Inputs, answer, respond
from cosyvoice_runtime.settings.extractors import ExtractorSettings
from cosyvoice_runtime.settings.model import BatchedSettings
from cosyvoice_runtime.voice.extractors import Outcome, SpeakerEncoder, SpeechTokenizer, extract_rows
from cosyvoice_runtime.voice.onnx_model import ExtractorModel

logger = logging.getLogger(__name__)


class Batches:
    """Passes waiting requests to a model from its own thread, at most ``max_batch`` at a time.

    One request more than ``max_queue_size`` is refused with UNAVAILABLE.
    """

    def __init__(self, model: ReferenceModel, settings: BatchedSettings) -> None:
        self._model = model
        self._settings = settings
        self._waiting: deque[Any] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=settings.name, daemon=True)
        self._thread.start()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            if not self._accept(request):
                limit = f"max_queue_size: {self._settings.max_queue_size} requests wait; try again later"
                answer(request, self._settings.name, OverloadedError(limit))

    def finalize(self) -> None:
        """Answer all waiting requests, and return."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        self._model.finalize()

    def _accept(self, request: Any) -> bool:
        with self._changed:
            accepted = len(self._waiting) < self._settings.max_queue_size and not self._closed
            if accepted:
                self._waiting.append(request)
                self._changed.notify()
        return accepted

    def _run(self) -> None:
        while batch := self._next():
            self._answer(batch)

    def _next(self) -> list[Any]:
        """The waiting requests, as soon as there are any; empty after the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            count = min(len(self._waiting), self._settings.max_batch)
            return [self._waiting.popleft() for _ in range(count)]

    def _answer(self, batch: list[Any]) -> None:
        try:
            answers = list(zip(batch, self._model.execute(batch), strict=True))
        except Exception as error:  # After any error the requests that follow are still answered.
            for request in batch:
                answer(request, self._settings.name, error)
            return
        for request, response in answers:
            request.get_response_sender().send(response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


T = TypeVar("T")


class Resting(Generic[T]):
    """An object that is opened at once, released after a time without users, and opened anew on demand.

    Safe for several threads, which may use it together.

    Args:
        open_: makes the object; its users get its errors.
        idle_s: time without users after which the object is released; 0 keeps it.
        gone: called after the release.
    """

    def __init__(self, open_: Callable[[], T], idle_s: float, gone: Callable[[], None]) -> None:
        self._open, self._idle_s, self._gone = open_, idle_s, gone
        self._lock = threading.Lock()
        self._users = 0
        self._timer: threading.Timer | None = None
        self._held: T | None = open_()
        with self._lock:
            self._rest()

    @contextmanager
    def used(self) -> Iterator[T]:
        """Keep the object open during the block."""
        held = self._take()
        try:
            yield held
        finally:
            del held  # The last user may hold the last reference.
            with self._lock:
                self._users -= 1
                self._rest()

    def close(self) -> None:
        """Release the object now; present users keep it."""
        with self._lock:
            self._wake()
            self._held = None

    def _take(self) -> T:
        with self._lock:  # One user opens the object for all that wait.
            self._wake()
            if self._held is None:
                self._held = self._open()
            self._users += 1
            return self._held

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rest(self) -> None:
        if self._users or not self._idle_s:
            return
        timer = threading.Timer(self._idle_s, lambda: self._go(timer))
        timer.daemon = True
        timer.start()
        self._timer = timer  # The timer may not have been started.

    def _go(self, timer: threading.Timer) -> None:
        with self._lock:
            if self._timer is not timer:  # A user may have come while the timer fired.
                return
            self._timer = self._held = None
        self._gone()


WARM_UP_SAMPLES = EXTRACTOR_SAMPLE_RATE
Extractor = SpeechTokenizer | SpeakerEncoder


class ReferenceModel(ABC):
    """A model around an extractor; config.pbtxt has its tensors.

    Attributes:
        output: name of the output tensor.
        stage: name of the network in errors and metrics.
    """

    output: ClassVar[str]
    stage: ClassVar[str]

    def __init__(self, settings: ExtractorSettings) -> None:
        self._name = settings.name
        self._count = RequestCount(self._name)
        self._not_finite = NotFiniteCount(Metrics(self._name), {self.stage: DAMAGED})
        self._extractor = Resting(partial(self._opened, settings), settings.idle_s, self._gone)

    def _opened(self, settings: ExtractorSettings) -> Extractor:
        """The network after its warm-up."""
        begun = time.monotonic()
        extractor = self.open(settings)
        extractor(np.zeros(WARM_UP_SAMPLES, np.float32))
        logger.info("%s: opened in %.1f s", self._name, time.monotonic() - begun)
        return extractor

    def _gone(self) -> None:
        give_back_heap()
        logger.info("%s: its memory goes back, because no reference comes", self._name)

    @abstractmethod
    def open(self, settings: ExtractorSettings) -> Extractor:
        """Open the network."""

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        with self._count.during(len(requests)):
            with self._extractor.used() as extractor:
                outcomes = extract_rows(extractor.batch, references(requests), self.stage)
            return [respond(self._name, self._outputs(outcome)) for outcome in outcomes]

    def _outputs(self, outcome: Outcome) -> dict[str, Array] | Exception:
        return (
            self._not_finite.with_remedy(outcome) if isinstance(outcome, Exception) else self.encoded(outcome)
        )

    def finalize(self) -> None:
        """Release the network's memory."""
        self._extractor.close()

    def encoded(self, features: Array) -> dict[str, Array]:
        """The output tensor with a batch dimension."""
        return {self.output: features[None]}


class AudioTokenizer(ReferenceModel):
    """The hosted model that turns references into speech tokens."""

    output = "prompt_speech_tokens"
    stage = SPEECH_TOKENIZER

    def open(self, settings: ExtractorSettings) -> Extractor:
        engine = engine_of(settings, "speech_tokenizer")
        return SpeechTokenizer.of(Layout(settings.checkpoint_dir), settings.threads, engine)


class SpeakerEmbedding(ReferenceModel):
    """The hosted model that turns references into speaker embeddings."""

    output = "prompt_spk_embedding"
    stage = SPEAKER_ENCODER

    def open(self, settings: ExtractorSettings) -> Extractor:
        path = Layout(settings.checkpoint_dir).speaker_encoder
        return SpeakerEncoder(path, threads=settings.threads, engine=engine_of(settings, "speaker_encoder"))


def engine_of(settings: ExtractorSettings, name: str) -> ExtractorModel | None:
    """The engine file of an extractor, which must match; None for backend onnx, which runs the published
    file."""
    if settings.backend == "onnx":
        return None
    # The import needs onnx and TensorRT, which backend onnx does without.
    from cosyvoice_runtime.tensorrt.extractor import open_extractor

    return open_extractor(settings, name)


def references(requests: Sequence[Any]) -> list[Audio | Exception]:
    """The checked 16 kHz reference of each request, or its error."""
    return [_reference(Inputs(request)) for request in requests]


def _reference(inputs: Inputs) -> Audio | Exception:
    try:
        samples = np.array(inputs.required("reference_wav"))
        return reference_audio(samples, EXTRACTOR_SAMPLE_RATE, inputs.scalar("reference_wav_len"))
    except InvalidInput as error:
        return error
