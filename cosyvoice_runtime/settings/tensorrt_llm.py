"""Section of the speech language model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.gpu.nvidia import KERNELS_FROM
from cosyvoice_runtime.settings.model import (
    CPU,
    NetworkSettings,
    require_order,
    resolved_device,
)
from cosyvoice_runtime.settings.runtime_choice import RuntimeChoice, RuntimeChooser, changed
from cosyvoice_runtime.settings.section import AUTO, AUTO_NUMBER, OR_AUTO, Flag

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from cosyvoice_runtime.families.family import SpeechLmNeeds
    from cosyvoice_runtime.gpu.nvidia import GpuFacts
    from cosyvoice_runtime.settings.machine import Machine


CPU_SLOTS = 16
TAKE_OPEN_TEXT = ("torch", "onnx")
"""Engines that take the text of a request in pieces, while they speak."""


class TensorrtLlmSettings(NetworkSettings):
    """``tensorrt_llm``: the speech language model and its in-flight batch."""

    name: ClassVar[str] = "tensorrt_llm"
    AUTO_GPU_DTYPE: ClassVar[str] = "bfloat16"

    engine: Literal["auto", "torch", "onnx", "tensorrt_llm", "vllm"] = Field(
        AUTO,
        description="What runs the network; [auto](engines.md#how-auto-chooses) is torch on a GPU, and onnx "
        "on a CPU where it can.",
    )
    gpu_share: float = Field(
        0.25,
        ge=0.0,
        le=0.75,
        description="Engine torch on a GPU that token2wav has, too: most of its multiprocessors that are the "
        "speech LM's own while token2wav computes; 0: they take shifts, as on GPUs that can't be divided. Up "
        "to 32 utterances it has 0.37 on a GPU of 40 GiB and more, unless this is larger or "
        "token2wav.first_chunks_beside is false.",
    )
    engine_dir: Path = Field(
        Path("engines/speech_lm"),
        description="Directory of the built engine or exported weights; unused by engine torch.",
    )
    weight_format: Literal["float32", "int8", "int8_rows"] = Field(
        "float32",
        description="Engine onnx: format of the layers' matrices. With int8 and int8_rows their inputs are "
        "8 bits, too: [gain and loss](engines.md#faster-and-less-exact).",
    )
    vocabulary: Literal["merged", "speech"] = Field(
        "merged",
        description="Engine tensorrt_llm: merged is for NVIDIA's stock model, speech emits speech ids only.",
    )
    weight_only: Literal["none", "int8", "int4", "fp8"] = Field(
        "none",
        description="Engine tensorrt_llm: format of the layers' matrices, quantised by stage 1; with fp8, "
        "for Ada, Hopper and newer GPUs, also of their inputs.",
    )
    max_slots: Annotated[int, Field(ge=1, le=1024), OR_AUTO] = Field(
        AUTO_NUMBER,
        description="Requests decoded together; auto is 16 on a CPU and with CosyVoice-300M, and up to 64 "
        "on a GPU [by its memory](deployment.md#a-recipe-for-each-card).",
    )
    max_tokens: int = Field(
        2048,
        ge=1,
        le=100_000,
        description="Most speech tokens of one request (25 a second, 50 with CosyVoice-300M).",
    )
    max_sequence_tokens: Annotated[int, Field(ge=16, le=1_000_000), OR_AUTO] = Field(
        AUTO_NUMBER,
        description="Most positions of one request: text, prompt speech and new speech; auto is 4096, with "
        "CosyVoice-300M 5000.",
    )
    kv_cache_tokens: Annotated[int, Field(ge=16, le=100_000_000), OR_AUTO] = Field(
        AUTO_NUMBER,
        description="Positions that all requests share; auto: max_slots of the longest request, with engine "
        "torch and fused kernels at most 64 of them. Engine tensorrt_llm has half of the free GPU memory "
        "for them.",
    )
    cuda_graphs: Flag = Field(
        True,
        description="Engine torch on a GPU: replay captured CUDA graphs, several times faster than "
        "launching every kernel. [Draws](exactness.md#why-streaming-is-exact) for a seed differ without "
        "them.",
    )
    kernels: Literal["auto", "fused", "plain"] = Field(
        AUTO,
        description="Engine torch: kernels in captured CUDA graphs. fused needs bfloat16 and compute "
        "capability 8.0; auto takes them where they run.",
    )
    max_queue_size: int = Field(
        256,
        ge=1,
        le=100_000,
        description="Requests that may wait for a slot; one more is refused with UNAVAILABLE.",
    )
    text_timeout_s: float = Field(
        30.0,
        ge=0.1,
        le=3600.0,
        description="Engines torch and onnx: longest wait of a request for further text.",
    )

    @model_validator(mode="after")
    def _fused_kernels_are_captured(self) -> Self:
        if self.kernels == "fused" and (self.engine not in ("torch", AUTO) or not self.cuda_graphs):
            raise InvalidInput(
                f"{self.name}.kernels", self.kernels, "auto or plain, unless engine is torch with cuda_graphs"
            )
        return self

    @model_validator(mode="after")
    def _onnx_computes_in_float32_on_a_cpu(self) -> Self:
        if self.engine == "onnx":
            for field, accepted in (("device", CPU), ("dtype", "float32")):
                given = getattr(self, field)
                if given not in (accepted, AUTO):
                    raise InvalidInput(f"{self.name}.{field}", given, f"{accepted} with engine onnx")
        return self

    @model_validator(mode="after")
    def _request_fits_a_sequence(self) -> Self:
        if self.max_sequence_tokens != AUTO_NUMBER:
            require_order(self, "max_tokens", "max_sequence_tokens")
        return self

    def gib_on(self, gpu: GpuFacts | None) -> float:
        """About what the published model takes of a GPU, once ``auto`` is resolved."""
        wide, needs = 2 if self.dtype == "float32" else 1, self._needs
        fits = gpu is None or gpu.capability >= KERNELS_FROM
        fused = needs.fused_gib if self._may_fuse and fits else 0.0
        cache_gib = self.kv_cache_tokens * needs.position_bytes / 2**30
        return round(wide * (needs.network_gib + cache_gib) + fused, 1)

    def resolved(self, machine: Machine) -> Self:
        network, needs = NetworkSettings.resolved(self._with_an_engine(machine), machine), self._needs
        slots = self.max_slots or (CPU_SLOTS if network.device == CPU else needs.slots)
        longest = self.max_sequence_tokens or needs.positions
        # Plain steps would copy from pages what they read.
        shares = network.device != CPU and network._may_fuse
        cache = self.kv_cache_tokens or (min(slots, needs.slots) if shares else slots) * longest
        return network.replace(
            max_slots=slots,
            max_sequence_tokens=longest,
            kv_cache_tokens=cache,
            engine_dir=self.engine_dir.absolute(),
        )

    @property
    def _may_fuse(self) -> bool:
        """Whether fused kernels may take the steps, on a GPU that has what they need."""
        return self.engine == "torch" and self.kernels != "plain" and self._needs.fused_gib > 0

    @property
    def _needs(self) -> SpeechLmNeeds:
        return Layout(self.checkpoint_dir).family.speech_lm_needs

    def why(self, machine: Machine) -> Mapping[str, str]:
        return {"engine": self._choice(machine).reason} if self.engine == AUTO else {}

    def _with_an_engine(self, machine: Machine) -> Self:
        """A copy whose engine is chosen for the device, and the other way round."""
        engine = self._choice(machine).runtime if self.engine == AUTO else self.engine
        device = CPU if engine == "onnx" and self.device == AUTO else self.device
        return self.replace(engine=engine, device=device)

    def _choice(self, machine: Machine) -> RuntimeChoice:
        for_torch = [
            *changed(f"{self.name}.dtype", self.dtype, "float32"),
            *changed(f"{self.name}.kernels", self.kernels, "plain"),
        ]
        device = resolved_device(self.device, machine)
        chooser = RuntimeChooser(device, self.checkpoint_dir, for_torch, self.engine_dir)
        return chooser.choose(chooser.family.engines, machine)
