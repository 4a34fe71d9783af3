"""The opening of the models that the engine's process computes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from cosyvoice_runtime.engine.batches.gpus import shared_gpus
from cosyvoice_runtime.gpu.partitions.shared_gpu import NOT_SHARED, SharedGpu, SharedGpus
from cosyvoice_runtime.serving.hosted.batches import Batches
from cosyvoice_runtime.serving.triton.load import limit_torch
from cosyvoice_runtime.settings import (
    AudioTokenizerSettings,
    SpeakerEmbeddingSettings,
    TensorrtLlmSettings,
    Token2WavSettings,
)
from cosyvoice_runtime.settings.extractors import ExtractorSettings
from cosyvoice_runtime.settings.model import BatchedSettings, ModelSettings
from cosyvoice_runtime.settings.repository import hosted_models, read_parameters
from cosyvoice_runtime.settings.runtime_choice import ONNX


def open_hosted(
    repository: Path, wave: Token2WavSettings, opened: ExitStack
) -> tuple[dict[str, Any], SharedGpus]:
    """The hosted models by name, and the GPU that token2wav shares with them.

    Args:
        wave: settings of token2wav.
        opened: finalizes each model at its end, also if a later one can't be opened.
    """
    hosted: dict[str, Any] = {}
    shared: SharedGpus = NOT_SHARED
    for name in hosted_models(repository):
        settings = KINDS[name].section.from_parameters(read_parameters(repository / name))
        # Otherwise the model's own threads compute.
        if KINDS[name].on_torch(settings) and wave.backend == ONNX:
            limit_torch(settings.threads)
        if isinstance(settings, TensorrtLlmSettings):
            shared = shared_gpus(settings, wave)
            hosted[name] = _speech_lm(settings, *shared.values())
        elif isinstance(settings, BatchedSettings):
            hosted[name] = Batches(KINDS[name].open(settings), settings)
        opened.callback(hosted[name].finalize)
    return hosted, shared


class Kind(NamedTuple):
    """The way in which a model is opened, and whether torch computes it."""

    section: type[ModelSettings]
    open: Callable[[Any], Any]
    on_torch: Callable[[Any], bool]


# Each model's libraries are imported only where it is opened.


def _speech_lm(settings: TensorrtLlmSettings, shared: SharedGpu | None = None) -> Any:
    from cosyvoice_runtime.serving.hosted.tensorrt_llm import SpeechLmModel

    return SpeechLmModel(settings, shared)


def _audio_tokenizer(settings: AudioTokenizerSettings) -> Any:
    from cosyvoice_runtime.serving.hosted.extractors import AudioTokenizer

    return AudioTokenizer(settings)


def _speaker_embedding(settings: SpeakerEmbeddingSettings) -> Any:
    from cosyvoice_runtime.serving.hosted.extractors import SpeakerEmbedding

    return SpeakerEmbedding(settings)


def _engine_on_torch(settings: TensorrtLlmSettings) -> bool:
    return settings.engine in ("torch", "tensorrt_llm", "vllm")


def _backend_on_torch(settings: ExtractorSettings) -> bool:
    return settings.backend == "tensorrt"


KINDS = {
    TensorrtLlmSettings.name: Kind(TensorrtLlmSettings, _speech_lm, _engine_on_torch),
    AudioTokenizerSettings.name: Kind(AudioTokenizerSettings, _audio_tokenizer, _backend_on_torch),
    SpeakerEmbeddingSettings.name: Kind(SpeakerEmbeddingSettings, _speaker_embedding, _backend_on_torch),
}
