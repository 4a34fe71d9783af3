"""Models that may share a process, opened to compute: alone, or beside token2wav."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from cosyvoice_runtime.serving.gpu_shifts import NO_SHIFTS, GpuShifts, ShiftsByGpu
from cosyvoice_runtime.serving.host.batches import Batches
from cosyvoice_runtime.serving.triton.load import limit_torch, read_settings
from cosyvoice_runtime.settings import AudioTokenizerSettings, SpeakerEmbeddingSettings, TensorrtLlmSettings
from cosyvoice_runtime.settings.extractors import ExtractorSettings
from cosyvoice_runtime.settings.model import BatchedSettings, ModelSettings, gpu_number
from cosyvoice_runtime.settings.rendered import guests_of, read_parameters


def open_alone(name: str, arguments: dict[str, str]) -> Any:
    """The model for a process of its own, whose batches are Triton's."""
    kind = KINDS[name]
    settings = read_settings(arguments, kind.section)
    if kind.on_torch(settings):
        limit_torch(settings.threads)
    return kind.open(settings)


def open_guests(repository: Path) -> tuple[dict[str, Any], ShiftsByGpu]:
    """The models that compute in token2wav's process beside it, by name, and the shifts that it keeps."""
    guests: dict[str, Any] = {}
    shifts: ShiftsByGpu = NO_SHIFTS
    for name in guests_of(repository):
        settings = KINDS[name].section.from_parameters(read_parameters(repository / name))
        if isinstance(settings, TensorrtLlmSettings):
            gpu = gpu_number(settings.device)
            shifts = NO_SHIFTS if gpu is None else {gpu: GpuShifts()}
            guests[name] = _speech_lm(settings, shifts.get(gpu))
        elif isinstance(settings, BatchedSettings):
            guests[name] = Batches(KINDS[name].open(settings), settings)
    return guests, shifts


class Kind(NamedTuple):
    """How a model is opened, and whether torch computes."""

    section: type[ModelSettings]
    open: Callable[[Any], Any]
    on_torch: Callable[[Any], bool]


# Imported where it is opened: a model alone needs no other's libraries.


def _speech_lm(settings: TensorrtLlmSettings, shifts: GpuShifts | None = None) -> Any:
    from cosyvoice_runtime.serving.lm.model import SpeechLmModel

    return SpeechLmModel(settings, shifts)


def _audio_tokenizer(settings: AudioTokenizerSettings) -> Any:
    from cosyvoice_runtime.serving.extractors import AudioTokenizer

    return AudioTokenizer(settings)


def _speaker_embedding(settings: SpeakerEmbeddingSettings) -> Any:
    from cosyvoice_runtime.serving.extractors import SpeakerEmbedding

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
