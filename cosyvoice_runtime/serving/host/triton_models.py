"""What the ``model.py`` files of ``tensorrt_llm`` and ``token2wav`` call ``TritonPythonModel``."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from cosyvoice_runtime.serving.gpu_shifts import NO_SHIFTS, GpuShifts, ShiftsByGpu
from cosyvoice_runtime.serving.host.door import Door
from cosyvoice_runtime.serving.host.model_host import ModelHost, socket_url
from cosyvoice_runtime.serving.lm.model import SpeechLmModel
from cosyvoice_runtime.serving.token2wav.model import WaveModel
from cosyvoice_runtime.serving.triton.load import read_settings
from cosyvoice_runtime.settings import TensorrtLlmSettings, Token2WavSettings
from cosyvoice_runtime.settings.model import gpu_number
from cosyvoice_runtime.settings.rendered import read_parameters

logger = logging.getLogger(__name__)


class TensorrtLlmModel:
    """The speech LM in this process, or a door to it."""

    def initialize(self, arguments: dict[str, str]) -> None:
        settings = read_settings(arguments, TensorrtLlmSettings)
        url = socket_url() if settings.process == "shared" else None
        self._model = SpeechLmModel(settings) if url is None else Door(settings.name, url)

    def execute(self, requests: list[Any]) -> None:
        self._model.execute(requests)

    def finalize(self) -> None:
        self._model.finalize()


class Token2WavModel:
    """token2wav and, if the settings say so, the speech LM beside it.

    A GPU serves one process at a time, and two take turns of its own; within one process they are ours.
    """

    def initialize(self, arguments: dict[str, str]) -> None:
        settings = read_settings(arguments, Token2WavSettings)
        self._lm = self._host = None
        shifts: ShiftsByGpu = NO_SHIFTS
        url, lm = socket_url(), speech_lm_beside(Path(arguments["model_repository"]))
        if url is not None and lm is not None:
            gpu = gpu_number(lm.device)
            shifts = NO_SHIFTS if gpu is None else {gpu: GpuShifts()}
            self._lm = SpeechLmModel(lm, shifts.get(gpu))
        self._wave = WaveModel(settings, shifts)
        if url is not None and self._lm is not None:
            self._host = ModelHost(url, {settings.name: self._wave, TensorrtLlmSettings.name: self._lm})

    def execute(self, requests: list[Any]) -> list[None]:
        return self._wave.execute(requests)

    def finalize(self) -> None:
        self._wave.finalize()
        if self._lm is not None:
            self._lm.finalize()
        if self._host is not None:
            self._host.close()


def speech_lm_beside(directory: Path) -> TensorrtLlmSettings | None:
    """Settings of the speech LM that shares token2wav's process; None if it has one of its own.

    Args:
        directory: of token2wav in the rendered repository.
    """
    path = directory.parent / TensorrtLlmSettings.name
    if not path.exists():
        return None
    settings = TensorrtLlmSettings.from_parameters(read_parameters(path))
    return settings if settings.process == "shared" else None
