"""The models ``audio_tokenizer`` and ``speaker_embedding``: one reference in, one tensor out."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np

from cosyvoice_runtime.arrays import Array, Floats
from cosyvoice_runtime.audio.audio import EXTRACTOR_SAMPLE_RATE, Audio, reference_audio
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.errors import SPEAKER_ENCODER, SPEECH_TOKENIZER, InvalidInput
from cosyvoice_runtime.metrics import Metrics
from cosyvoice_runtime.metrics.metrics import RequestCount
from cosyvoice_runtime.onnx.memory import give_back_heap
from cosyvoice_runtime.serving.hosted.resting import Resting
from cosyvoice_runtime.serving.not_finite import DAMAGED, NotFiniteCount
from cosyvoice_runtime.serving.triton.request import Inputs, respond
from cosyvoice_runtime.settings.extractors import ExtractorSettings
from cosyvoice_runtime.voice.extractors import Outcome, SpeakerEncoder, SpeechTokenizer, extract_rows
from cosyvoice_runtime.voice.onnx_model import ExtractorModel

logger = logging.getLogger(__name__)

WARM_UP_SAMPLES = EXTRACTOR_SAMPLE_RATE


class Extractor(Protocol):
    """A network for references, float32 ``[n]`` at 16 kHz each."""

    def __call__(self, samples: Floats) -> Array: ...

    def batch(self, waveforms: Sequence[Floats]) -> list[Array]: ...


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
        logger.info("%s: its memory goes back, for nobody brings a reference", self._name)

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
    """The engine file of an extractor; None for backend onnx, which runs the published file.

    Raises:
        EngineFileError: the engine is missing or does not match.
    """
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
