"""Sections of the two models that analyse a reference."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, model_validator

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings.model import (
    BACKEND_DIR,
    BatchedSettings,
    Device,
    require_device,
    resolved_device,
)
from cosyvoice_runtime.settings.section import AUTO

if TYPE_CHECKING:
    from typing import Self

    from cosyvoice_runtime.settings.machine import Machine


class ExtractorSettings(BatchedSettings):
    """Fields of a model that analyses references."""

    backend: Literal["onnx", "tensorrt"] = Field(
        "onnx", description="What runs the network: ONNX Runtime on the CPU, or an engine from stage 1."
    )
    backend_dir: Path = Field(
        BACKEND_DIR, description="Directory of graphs and engines; unused by backend onnx."
    )
    idle_s: float = Field(
        0.0,
        ge=0.0,
        le=86400.0,
        description="Backend onnx: seconds without a reference after which the network's memory is freed, "
        "half a gigabyte for a published speech tokenizer, until the next one; 0 keeps it.",
    )
    device: Device = Field(AUTO, description="Where backend tensorrt runs the network.")

    @model_validator(mode="after")
    def _tensorrt_runs_on_a_gpu(self) -> Self:
        if self.backend == "tensorrt":
            require_device(self, self.device, "cuda", self.backend)
        return self

    @model_validator(mode="after")
    def _onnx_rests(self) -> Self:
        if self.idle_s and self.backend != "onnx":
            raise InvalidInput(f"{self.name}.idle_s", self.idle_s, f"0 with backend {self.backend}")
        return self

    def resolved(self, machine: Machine) -> Self:
        device = resolved_device(self.device, machine)
        return super().resolved(machine).replace(device=device, backend_dir=self.backend_dir.absolute())


class AudioTokenizerSettings(ExtractorSettings):
    """``audio_tokenizer``: reference to speech tokens."""

    name: ClassVar[str] = "audio_tokenizer"


class SpeakerEmbeddingSettings(ExtractorSettings):
    """``speaker_embedding``: reference to the vector of its speaker."""

    name: ClassVar[str] = "speaker_embedding"
