"""The ``TritonPythonModel`` of token2wav, whose process is the engine, and the models that it opens."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.engine.batches.load import shared_gpu
from cosyvoice_runtime.engine.host_client import host_socket, leave_socket
from cosyvoice_runtime.engine.speech_engine import SpeechEngine
from cosyvoice_runtime.gpu.kernels.choice import triton_obstacle
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu
from cosyvoice_runtime.metrics import Metrics, trace
from cosyvoice_runtime.process.garbage import keep_loaded, load_uncollected
from cosyvoice_runtime.serving.hosted.extractors import AudioTokenizer, Batches, SpeakerEmbedding
from cosyvoice_runtime.serving.hosted.kernels_ahead import compile_ahead
from cosyvoice_runtime.serving.hosted.model_host import ModelHost
from cosyvoice_runtime.serving.hosted.token2wav import WaveModel
from cosyvoice_runtime.serving.triton.load import limit_torch, read_settings
from cosyvoice_runtime.settings import (
    AudioTokenizerSettings,
    SpeakerEmbeddingSettings,
    TensorrtLlmSettings,
    Token2WavSettings,
)
from cosyvoice_runtime.settings.extractors import ExtractorSettings
from cosyvoice_runtime.settings.model import CUDA, ModelSettings
from cosyvoice_runtime.settings.repository import hosted_models, read_parameters
from cosyvoice_runtime.settings.runtime_choice import ONNX

SECTIONS: dict[str, type[ModelSettings]] = {
    each.name: each for each in (TensorrtLlmSettings, AudioTokenizerSettings, SpeakerEmbeddingSettings)
}


def open_hosted(
    repository: Path, wave: Token2WavSettings, opened: ExitStack
) -> tuple[dict[str, Any], SharedGpu | None]:
    """The hosted models by name, and the GPU that token2wav shares with the speech LM, if any.

    Args:
        wave: settings of token2wav.
        opened: finalizes each model at its end, also if a later one can't be opened.
    """
    hosted: dict[str, Any] = {}
    shared: SharedGpu | None = None
    for name in hosted_models(repository):
        settings = SECTIONS[name].from_parameters(read_parameters(repository / name))
        if isinstance(settings, TensorrtLlmSettings):
            from cosyvoice_runtime.serving.hosted.tensorrt_llm import SpeechLmModel

            _limit_torch(settings.engine, settings.threads, wave)
            shared = shared_gpu(settings, wave)
            hosted[name] = SpeechLmModel(settings, shared)
        elif isinstance(settings, ExtractorSettings):
            _limit_torch(settings.backend, settings.threads, wave)
            model = AudioTokenizer if isinstance(settings, AudioTokenizerSettings) else SpeakerEmbedding
            hosted[name] = Batches(model(settings), settings)
        opened.callback(hosted[name].finalize)
    return hosted, shared


def _limit_torch(runs_on: str, threads: int, wave: Token2WavSettings) -> None:
    """Set torch's threads for a model that computes on torch, unless token2wav has set them."""
    if runs_on != ONNX and wave.backend == ONNX:
        limit_torch(threads)


ON_TORCH = ("torch", "tensorrt")
"""The backends of which torch computes all or some networks."""
SWITCH_S = 0.1e-3
"""The longest time for which a thread keeps Python's lock from others, while the speech LM steps on a GPU.
Python's default of 5 ms is longer than a step, and a first audio needs sixteen steps. With 0.1 instead of 0.5
ms, first audio of 16 and 64 clients came 4 and 19 ms sooner (p50), in one run each on an H200."""


def _prepare_gpu(settings: Token2WavSettings) -> None:
    """Choose the row of kernels, and limit the GPU's memory."""
    from cosyvoice_runtime.gpu.kernels.rows import read_row, use_row
    from cosyvoice_runtime.gpu.memory import limit_memory

    if settings.kernels_file != "none":
        use_row(read_row(Path(settings.kernels_file)))
    if settings.max_gpu_gib:
        limit_memory(settings.device, settings.max_gpu_gib)


class Token2WavModel:
    """The engine: token2wav's process, which computes all networks and drives utterances.

    A GPU serves one process at a time and chooses by itself between two; within one process the choice is
    ours. On a CPU, one process has the libraries in memory once.
    """

    def initialize(self, arguments: dict[str, str]) -> None:
        trace.send()
        settings = read_settings(arguments, Token2WavSettings)
        repository = Path(arguments["model_repository"]).parent
        if settings.backend in ON_TORCH:
            captures = settings.device.startswith(CUDA) and settings.cuda_graphs
            if captures and settings.kernels != "plain" and triton_obstacle() is None:
                compile_ahead(repository, Metrics(settings.name))  # Before torch is imported, for seconds.
            load_uncollected()
            with_lm = TensorrtLlmSettings.name in hosted_models(repository)
            Layout(settings.checkpoint_dir).check_ahead("flow", "hift", *(("llm",) if with_lm else ()))
            if settings.device.startswith(CUDA):
                _prepare_gpu(settings)
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
        trace.close()

    def _open(self, settings: Token2WavSettings, repository: Path, opened: ExitStack) -> None:
        """Open the models and their host, which is closed after their last answers."""
        hosting = opened.enter_context(ExitStack())
        hosted, shared = open_hosted(repository, settings, opened)
        if shared is not None:
            sys.setswitchinterval(SWITCH_S)
        self._wave = WaveModel(settings, shared)
        opened.callback(self._wave.finalize)
        lm = hosted.get(TensorrtLlmSettings.name)
        socket = host_socket()
        hosting.callback(leave_socket, socket)
        engine = None if lm is None else SpeechEngine(lm, self._wave, settings.hop_growth)
        host = ModelHost(socket, hosted, engine)
        hosting.callback(host.close)
