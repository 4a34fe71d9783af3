"""Models that compute in a process of their own or, behind a door, in token2wav's."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from cosyvoice_runtime.serving.host.batches import Batches
from cosyvoice_runtime.serving.host.door import Door
from cosyvoice_runtime.serving.host.model_host import socket_url
from cosyvoice_runtime.serving.triton.load import read_settings, use_threads
from cosyvoice_runtime.settings import AudioTokenizerSettings, SpeakerEmbeddingSettings, TensorrtLlmSettings
from cosyvoice_runtime.settings.model import ModelSettings
from cosyvoice_runtime.settings.rendered import guests_of, read_parameters


class GuestModel(ABC):
    """What the ``model.py`` of such a model calls ``TritonPythonModel``.

    Attributes:
        section: its settings.
    """

    section: ClassVar[type[ModelSettings]]

    def initialize(self, arguments: dict[str, str]) -> None:
        settings = read_settings(arguments, self.section)
        url = socket_url()
        if url is not None and settings.name in guests_of(Path(arguments["model_repository"]).parent):
            policy = json.loads(arguments["model_config"]).get("model_transaction_policy", {})
            self._model: Any = Door(settings.name, url, streamed=policy.get("decoupled", False))
        else:
            use_threads(settings.threads)
            self._model = self.open(settings)

    def execute(self, requests: list[Any]) -> Any:
        return self._model.execute(requests)

    def finalize(self) -> None:
        self._model.finalize()

    @staticmethod
    @abstractmethod
    def open(settings: Any) -> Any:
        """The model that computes. What it needs is imported here: a door does without torch."""

    @classmethod
    def open_hosted(cls, settings: Any) -> Any:
        """The same for a process that Triton forms no batches for."""
        return cls.open(settings)


class TensorrtLlmModel(GuestModel):
    """The speech LM."""

    section = TensorrtLlmSettings

    @staticmethod
    def open(settings: TensorrtLlmSettings) -> Any:
        from cosyvoice_runtime.serving.lm.model import SpeechLmModel

        return SpeechLmModel(settings)


class AudioTokenizerModel(GuestModel):
    """Reference to speech tokens."""

    section = AudioTokenizerSettings

    @staticmethod
    def open(settings: AudioTokenizerSettings) -> Any:
        from cosyvoice_runtime.serving.extractors import AudioTokenizer

        return AudioTokenizer(settings)

    @classmethod
    def open_hosted(cls, settings: AudioTokenizerSettings) -> Batches:
        return Batches(cls.open(settings), settings)


class SpeakerEmbeddingModel(GuestModel):
    """Reference to the vector of its speaker."""

    section = SpeakerEmbeddingSettings

    @staticmethod
    def open(settings: SpeakerEmbeddingSettings) -> Any:
        from cosyvoice_runtime.serving.extractors import SpeakerEmbedding

        return SpeakerEmbedding(settings)

    @classmethod
    def open_hosted(cls, settings: SpeakerEmbeddingSettings) -> Batches:
        return Batches(cls.open(settings), settings)


MODELS: dict[str, type[GuestModel]] = {
    model.section.name: model for model in (TensorrtLlmModel, AudioTokenizerModel, SpeakerEmbeddingModel)
}


def open_guests(repository: Path) -> dict[str, Any]:
    """The models that compute in token2wav's process beside it, by name."""
    return {
        name: MODELS[name].open_hosted(
            MODELS[name].section.from_parameters(read_parameters(repository / name))
        )
        for name in guests_of(repository)
    }
