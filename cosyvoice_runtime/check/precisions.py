"""The precisions that are compared: float32, and what the settings serve."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cosyvoice_runtime.errors import FLOW, SPEECH_LM, VOCODER
from cosyvoice_runtime.local.networks import Placing
from cosyvoice_runtime.settings import Settings, TensorrtLlmSettings
from cosyvoice_runtime.settings.machine import installed
from cosyvoice_runtime.settings.token2wav import EIGHT_BIT_PAGES

FLOAT32 = "float32"
STAND_INS = ("tensorrt_llm", "vllm", "tensorrt")
"""The engines and backends that are compared by torch in their dtype."""


class PrecisionRound(NamedTuple):
    """The devices and number formats of the networks in one round.

    Attributes:
        formats: of numbers, by stage, as in :data:`~cosyvoice_runtime.check.comparison.LIMITS`.
    """

    lm_placing: Placing
    wave_placing: Placing
    formats: Mapping[str, str]

    def label(self, stage: str) -> str:
        """Format and runtime of a stage, for reading."""
        placing = self.lm_placing if stage == SPEECH_LM else self.wave_placing
        return f"{self.formats[stage]} on {placing.runtime}, {placing.device}"


def served(settings: Settings, exported: Path) -> PrecisionRound:
    """The precisions that resolved settings serve.

    Args:
        exported: directory for graphs of ONNX Runtime.
    """
    place, lm, wave = exported / "served", settings.tensorrt_llm, settings.token2wav
    lm_format, lm_placing = _served_lm(lm, place)
    steps: dict[str, Any] = {"ode_steps": wave.num_steps, "solver": wave.solver}
    if wave.backend != "onnx":
        dtype = _dtype(wave.dtype)
        placing = Placing("torch", wave.devices[0], flow_dtype=dtype, vocoder_dtype=dtype, **steps)
        formats = {SPEECH_LM: lm_format, FLOW: wave.dtype, VOCODER: wave.dtype}
        return PrecisionRound(lm_placing, placing, formats)
    weights, pages = wave.weight_format, wave.page_format
    placing = Placing(
        "onnx", threads=wave.threads, exported=place, flow_weights=weights, page_format=pages, **steps
    )
    flow = pages if weights == FLOAT32 else weights
    return PrecisionRound(lm_placing, placing, {SPEECH_LM: lm_format, FLOW: flow, VOCODER: FLOAT32})


def _served_lm(lm: TensorrtLlmSettings, place: Path) -> tuple[str, Placing]:
    if lm.engine != "onnx":
        return lm.dtype, Placing("torch", lm.device, lm_dtype=_dtype(lm.dtype))
    return lm.weight_format, Placing(
        "onnx", weight_format=lm.weight_format, threads=lm.threads, exported=place
    )


def float32(like: PrecisionRound, exported: Path) -> PrecisionRound | None:
    """The same networks in float32, on torch where it is installed; None where nothing else would run."""
    lm, wave, place = like.lm_placing, like.wave_placing, exported / FLOAT32
    formats = dict.fromkeys(like.formats, FLOAT32)
    steps: dict[str, Any] = {"ode_steps": wave.ode_steps, "solver": wave.solver}
    if installed("torch"):
        return PrecisionRound(Placing("torch", lm.device), Placing("torch", wave.device, **steps), formats)
    if formats == like.formats:
        return None
    own = Placing("onnx", threads=lm.threads, exported=place)
    return PrecisionRound(own, Placing("onnx", threads=wave.threads, exported=place, **steps), formats)


def not_run(settings: Settings) -> list[str]:
    """The reasons, a line each, why something that is served is not compared."""
    lm, wave = settings.tensorrt_llm, settings.token2wav
    chosen = {"tensorrt_llm.engine": lm.engine, "token2wav.backend": wave.backend}
    lines = [
        f"{key}={value} itself: torch in its dtype is" for key, value in chosen.items() if value in STAND_INS
    ]
    if any(device.startswith("cuda") for device in (lm.device, *wave.devices)):
        lines.append(
            "fused kernels and CUDA graphs, whose numbers the server's probes look at when it starts"
        )
    if wave.backend == "torch" and wave.page_format == EIGHT_BIT_PAGES:
        lines.append("pages in 8 bits")
    served_ = served(settings, Path())
    if float32(served_, Path()) is None:
        lines.append(
            "anything with torch, which is not installed: ONNX Runtime's float32 is served and looked at"
        )
    return lines


def _dtype(name: str) -> Any:
    import torch

    return getattr(torch, name)
