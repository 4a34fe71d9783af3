"""The ``TritonPythonModel`` of token2wav, whose process is the engine, and the models that it opens."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.engine.batches.load import shared_gpus
from cosyvoice_runtime.engine.host_client import host_socket, leave_socket
from cosyvoice_runtime.engine.speech_engine import SpeechEngine
from cosyvoice_runtime.gpu.partitions.shared_gpu import NOT_SHARED, SharedGpu, SharedGpus
from cosyvoice_runtime.serving.hosted.extractors import Batches
from cosyvoice_runtime.serving.hosted.model_host import ModelHost
from cosyvoice_runtime.serving.hosted.token2wav import WaveModel
from cosyvoice_runtime.serving.triton.load import keep_loaded, limit_torch, load_uncollected, read_settings
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


ON_TORCH = ("torch", "tensorrt")
"""The backends of which torch computes all or some networks."""
SWITCH_S = 0.1e-3
"""The longest time for which a thread keeps Python's lock from others, while the speech LM steps on a GPU.
Python's default of 5 ms is longer than a step, and a first audio needs sixteen steps. With 0.1 instead of 0.5
ms, first audio of 16 and 64 clients came 4 and 19 ms sooner (p50), in one run each on an H200."""


class Token2WavModel:
    """The engine: token2wav's process, which computes all networks and drives utterances.

    A GPU serves one process at a time and chooses by itself between two; within one process the choice is
    ours. On a CPU, one process has the libraries in memory once.
    """

    def initialize(self, arguments: dict[str, str]) -> None:
        settings = read_settings(arguments, Token2WavSettings)
        repository = Path(arguments["model_repository"]).parent
        if settings.backend in ON_TORCH:
            load_uncollected()
            with_lm = TensorrtLlmSettings.name in hosted_models(repository)
            Layout(settings.checkpoint_dir).check_ahead("flow", "hift", *(("llm",) if with_lm else ()))
            limit_torch(settings.threads)
        with ExitStack() as opened:  # The threads of a failed load would keep the process from ending.
            self._open(settings, repository, opened)
            keep_loaded()
            self._wave.prepare()
            self._opened = opened.pop_all()

    def execute(self, requests: list[Any]) -> list[None]:
        return self._wave.execute(requests)

    def finalize(self) -> None:
        self._opened.close()

    def _open(self, settings: Token2WavSettings, repository: Path, opened: ExitStack) -> None:
        """Open the models and their host, which is closed after their last answers."""
        hosting = opened.enter_context(ExitStack())
        hosted, shared = open_hosted(repository, settings, opened)
        if shared:
            sys.setswitchinterval(SWITCH_S)
        self._wave = WaveModel(settings, shared)
        opened.callback(self._wave.finalize)
        lm = hosted.get(TensorrtLlmSettings.name)
        socket = host_socket()
        hosting.callback(leave_socket, socket)
        engine = None if lm is None else SpeechEngine(lm, self._wave, settings.hop_growth)
        host = ModelHost(socket, hosted, engine)
        hosting.callback(host.close)
