"""The networks of one checkpoint in this process: on torch, or on ONNX Runtime and numpy."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosyvoice_runtime.checkpoint.config import ModelConfig
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.flow.page_store import FLOW_PAGES
from cosyvoice_runtime.flow.solvers import EULER
from cosyvoice_runtime.lm.running_batch import RunningBatch
from cosyvoice_runtime.token2wav.token2wav import AnyToken2Wav

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

RUNTIMES = ("torch", "onnx")
EXPORTED = Path("~/.cache/cosyvoice/networks")

OpenBatch = Callable[[int, Sequence[tuple[int, int]]], RunningBatch]
"""Opens a batch of the speech LM for one utterance of this many positions, which tells what these heads look
at: layer and head of each."""


def require_runtime(name: str) -> None:
    """Refuse a runtime that is unknown or not installed, by an InvalidInput."""
    if name not in RUNTIMES:
        raise InvalidInput("runtime", name, f"one of {', '.join(RUNTIMES)}")
    if name == "torch" and find_spec("torch") is None:
        raise InvalidInput("runtime", name, "onnx where torch is not installed")


@dataclass(frozen=True)
class Placing:
    """The placement and options of the networks.

    Attributes:
        runtime: ``torch``, or ``onnx``: ONNX Runtime on a CPU.
        device: device of torch.
        lm_dtype, flow_dtype, vocoder_dtype: data types on torch; None is float32.
        threads: threads of one ONNX Runtime operation.
        weight_format: weights of the speech LM on ONNX Runtime, ``float32``, ``int8`` or ``int8_rows``.
        flow_weights, page_format: formats of the flow on ONNX Runtime, as in the settings of token2wav.
        exported: directory of the exported ONNX graphs, with a folder for each checkpoint.
        lookahead_frames: mel frames the vocoder waits for; None is its default.
        ode_steps: solver steps of the flow; None is the number of its own times, or the published one.
        solver: solver of the flow, one of :data:`~cosyvoice_runtime.flow.solvers.SOLVERS`.

    Raises:
        InvalidInput: the runtime is unknown or not installed, or lacks the device.
    """

    runtime: str = "torch"
    device: torch.device | str = "cpu"
    lm_dtype: torch.dtype | None = None
    flow_dtype: torch.dtype | None = None
    vocoder_dtype: torch.dtype | None = None
    threads: int = 1
    weight_format: str = "float32"
    exported: Path = EXPORTED
    lookahead_frames: int | None = None
    ode_steps: int | None = None
    solver: str = EULER
    flow_weights: str = "float32"
    page_format: str = "float32"

    def __post_init__(self) -> None:
        require_runtime(self.runtime)
        if self.runtime == "onnx" and str(self.device) != "cpu":
            raise InvalidInput("device", self.device, "cpu with runtime onnx")

    def folder_of(self, checkpoint: Path) -> Path:
        """The directory of a checkpoint's exported graphs."""
        place = checkpoint.resolve()
        digest = hashlib.sha256(str(place).encode()).hexdigest()
        return self.exported.expanduser() / f"{place.name}-{digest[:12]}"


def open_lm(layout: Layout, config: ModelConfig, placing: Placing) -> tuple[Any, OpenBatch]:
    """Load the speech LM and what opens a batch of it.

    Raises:
        CheckpointError: a file is missing or damaged.
        InvalidInput: the runtime can't run the checkpoint's networks, or torch has no such device.
    """
    _require_runs(layout, placing)
    return (_lm_on_torch if placing.runtime == "torch" else _lm_on_onnx_runtime)(layout, config, placing)


def open_token2wav(layout: Layout, config: ModelConfig, placing: Placing) -> AnyToken2Wav:
    """Load flow and vocoder; raises as :func:`open_lm` does."""
    _require_runs(layout, placing)
    return (_wave_on_torch if placing.runtime == "torch" else _wave_on_onnx_runtime)(layout, config, placing)


def _require_runs(layout: Layout, placing: Placing) -> None:
    if placing.runtime == "onnx" and "onnx" not in layout.family.backends:
        raise InvalidInput("runtime", "onnx", f"torch with a checkpoint of {layout.family.name}")
    logger.info("loading %s for runtime %s on %s", layout.directory, placing.runtime, placing.device)


# Each runtime is imported only when it is used: the other one may not be installed.


def _lm_on_torch(layout: Layout, config: ModelConfig, placing: Placing) -> tuple[Any, OpenBatch]:
    import torch

    _require_device(placing.device)

    from cosyvoice_runtime.checkpoint.as_torch import load_tensors
    from cosyvoice_runtime.lm.torch.adapters import load_adapters
    from cosyvoice_runtime.lm.torch.decoder import BatchDecoder
    from cosyvoice_runtime.lm.torch.speech_decoder import load_speech_lm

    tensors = load_tensors(layout, "llm", config)
    lm = load_speech_lm(config.speech_lm, tensors, placing.device, placing.lm_dtype or torch.float32)
    load_adapters(lm, layout, config.speech_lm)
    return lm, lambda positions, heads: BatchDecoder(lm, slots=1, max_len=positions, heads=heads)


def _wave_on_torch(layout: Layout, config: ModelConfig, placing: Placing) -> AnyToken2Wav:
    import torch

    _require_device(placing.device)

    from cosyvoice_runtime.token2wav.chunked_token2wav import Precision
    from cosyvoice_runtime.token2wav.loading import load_token2wav

    float32 = torch.float32
    precision = Precision(placing.flow_dtype or float32, placing.vocoder_dtype or float32)
    return load_token2wav(
        layout,
        config,
        placing.device,
        precision,
        placing.ode_steps,
        placing.lookahead_frames,
        placing.solver,
    )


def _require_device(device: torch.device | str) -> None:
    import torch

    from cosyvoice_runtime.gpu.nvidia import obstacle_to_torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # A torch without CUDA raises AssertionError.
        found = obstacle_to_torch() if str(device).startswith("cuda") else None
        reason = found.text if found else str(error).partition("\n")[0]
        raise InvalidInput("device", str(device), f"expected one that torch can use: {reason}") from error


def _lm_on_onnx_runtime(layout: Layout, config: ModelConfig, placing: Placing) -> tuple[Any, OpenBatch]:
    """Open the speech LM; files that are missing or outdated are written first."""
    from cosyvoice_runtime.lm.onnx.export import export_lm
    from cosyvoice_runtime.lm.onnx.files import LmFiles
    from cosyvoice_runtime.lm.onnx.speech_lm import OnnxSpeechLM, open_batch

    folder = placing.folder_of(layout.directory) / f"speech_lm-{placing.weight_format}"
    _tell(folder, export_lm(layout.directory, folder, placing.weight_format))
    lm = OnnxSpeechLM(config.speech_lm, LmFiles(folder), placing.threads)
    return lm, lambda positions, _: open_batch(lm, 1, positions)


def _wave_on_onnx_runtime(layout: Layout, config: ModelConfig, placing: Placing) -> AnyToken2Wav:
    """Open flow and vocoder; files that are missing or outdated are written first."""
    from cosyvoice_runtime.flow.onnx.flow import OnnxFlow, OnnxFlowStream
    from cosyvoice_runtime.onnx.session import EstimatorFormats
    from cosyvoice_runtime.token2wav.onnx_export import export_wave
    from cosyvoice_runtime.token2wav.onnx_files import wave_directory
    from cosyvoice_runtime.token2wav.token2wav import Token2Wav
    from cosyvoice_runtime.vocoder.onnx.vocoder import OnnxVocoder

    folder, threads = placing.folder_of(layout.directory), placing.threads
    formats = EstimatorFormats(placing.flow_weights, placing.page_format)
    _tell(folder, export_wave(layout.directory, folder, formats))
    flow = OnnxFlow(config.flow, wave_directory(folder), placing.ode_steps, threads, placing.solver)
    vocoder = OnnxVocoder(config.vocoder, wave_directory(folder), threads)
    return Token2Wav(OnnxFlowStream(flow, FLOW_PAGES), vocoder, placing.lookahead_frames)


def _tell(folder: Path, reasons: list[str]) -> None:
    for reason in reasons:
        logger.info("%s: made because: %s", folder, reason)
