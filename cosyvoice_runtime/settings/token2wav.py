"""Section of token2wav."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from cosyvoice_runtime.checkpoint.flow_schedule import FlowSchedule
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.flow.solvers import require_solver, step_count
from cosyvoice_runtime.settings.model import (
    BACKEND_DIR,
    CPU,
    CUDA,
    GPU,
    BatchedSettings,
    NetworkSettings,
    require_device,
    resolved_device,
    whole_or_exact,
)
from cosyvoice_runtime.settings.runtime_choice import RuntimeChoice, RuntimeChooser, changed
from cosyvoice_runtime.settings.section import AUTO, AUTO_NUMBER, EXACT, OR_AUTO, Accepted, Flag

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from cosyvoice_runtime.settings.machine import Machine

EIGHT_BIT_PAGES = "int8"
"""A page format of backend torch."""
ONNX_GRAPHS = "onnx_cpu"
"""Folder of backend onnx in ``backend_dir``."""
CPU_BATCH, GPU_BATCH = 8, 16
CPU_HOP_GROWTH, GPU_HOP_GROWTH = 0.5, 2.0
"""Longer chunks spare a GPU batches. A CPU takes longer for a block of the flow than for what a batch costs
besides, so they spare it nothing."""
CPU_SCHEDULERS = 2
"""Schedulers of backend onnx: calls of one utterance use a core or two well, those of several the others."""
Devices = Annotated[
    str,
    Field(pattern=rf"^({AUTO}|{CPU}(,{CPU})*|{GPU})$"),
    Accepted(f"cpu, also several with commas, cuda, cuda:N or {AUTO}"),
]
Lookahead = Annotated[
    str, Field(pattern=rf"^({EXACT}|[0-9]{{1,2}})$"), Accepted(f"{EXACT}, or a whole number from 0 to 99")
]


class Token2WavSettings(NetworkSettings, BatchedSettings):
    """``token2wav``: speech tokens to waveform, flow and vocoder."""

    name: ClassVar[str] = "token2wav"
    AUTO_GPU_DTYPE: ClassVar[str] = "float16"

    device: Devices = Field(
        AUTO,
        description="Where the networks run: the speech LM's GPU, if both have one. "
        "With backend onnx, cpu,cpu computes two utterances at a time with one copy; auto is that on "
        "several cores.",
    )
    max_batch: Annotated[int, Field(ge=1, le=1024), OR_AUTO] = Field(
        AUTO_NUMBER,
        description="Utterances in one call; auto is 16 with backend torch on a GPU, 8 elsewhere. A GPU of "
        "less than 40 GiB computes 8 at most.",
    )
    ode_steps: Annotated[int, Field(ge=1, le=100), OR_AUTO] = Field(
        AUTO_NUMBER,
        description="Steps of the flow's solver; auto is 10, or as many as a [distilled "
        "flow](library.md#distilled-flows) has times.",
    )
    solver: Literal["euler", "adams_bashforth"] = Field(
        "euler",
        description="Solver of the flow: euler as published; adams_bashforth with 7 ode_steps is as exact "
        "as euler with 10.",
    )
    lookahead_frames: Lookahead = Field(
        EXACT,
        description="Mel frames that the vocoder holds back; exact (21 with CosyVoice2, 5 with CosyVoice3) "
        "leaves no join, fewer speak sooner.",
    )
    idle_timeout_s: float = Field(
        60.0,
        ge=0.1,
        le=3600.0,
        description="Longest time without a chunk before an utterance's state is dropped; waiting and "
        "computing don't count.",
    )
    max_flow_pages: Annotated[int, Field(ge=1, le=1_000_000), OR_AUTO] = Field(
        AUTO_NUMBER,
        description="Most seconds of finished speech, prompts included, kept on a device; auto is 512 on a "
        "CPU and 4096 on a GPU.",
    )
    gpu_reserve_gib: Annotated[float, Field(ge=0.5, le=1000.0), OR_AUTO] = Field(
        AUTO_NUMBER,
        description="Memory of each GPU left to other processes, whether started or not; auto is what the "
        "speech LM takes there, and 1 for the rest.",
    )
    max_gpu_gib: float = Field(
        0.0,
        ge=0.0,
        le=1000.0,
        description="Memory of the GPU that the server uses, as if there were no more; 0 is all of it.",
    )
    backend: Literal["auto", "torch", "onnx", "tensorrt"] = Field(
        AUTO,
        description="What runs the networks; tensorrt needs engines from stage 1. "
        "[auto](engines.md#how-auto-chooses) is torch on a GPU, and onnx on a CPU where it can.",
    )
    weight_format: Literal["float32", "int8"] = Field(
        "float32",
        description="Backend onnx: format of most matrices of the flow's estimator. With int8 their inputs "
        "are 8 bits, too: [gain and loss](engines.md#faster-and-less-exact).",
    )
    page_format: Literal["auto", "float32", "float16", "bfloat16", "float8", "int8"] = Field(
        AUTO,
        description="Format of finished speech that later chunks read; auto is the network's. Backend torch "
        "also takes int8: half of float16's memory, and batches of many take a fifth longer. Backend onnx "
        "also takes float16, and with CosyVoice2 float8: [gain and "
        "loss](engines.md#faster-and-less-exact).",
    )
    cuda_graphs: Flag = Field(
        True,
        description="Backend torch on a GPU: replay captured CUDA graphs, "
        "several times faster than launching every kernel.",
    )
    first_chunks_beside: Flag = Field(
        True,
        description="Backend torch with CUDA graphs on a GPU that is divided: while a batch is computed, "
        "first chunks, and others whose listeners would soon run out of audio, are computed concurrently, on "
        "the speech LM's part of the GPU (tensorrt_llm.gpu_share). "
        "false: they wait for the next batch, and the GPU has one division however few speak.",
    )
    kernels: Literal["auto", "fused", "plain"] = Field(
        AUTO,
        description="Kernels in captured CUDA graphs. fused needs float16 and compute capability 8.0; auto "
        "takes them where they run.",
    )
    kernels_file: str = Field(
        "none",
        description="Tiles of the fused kernels, of the speech LM's too: [a file](gpus.md#other-tiles); none "
        "takes those of the GPU's row.",
    )
    backend_dir: Path = Field(
        BACKEND_DIR, description="Directory of graphs and engines; unused by backend torch."
    )
    backend_max_seconds: int = Field(
        60,
        ge=10,
        le=150,
        description="Longest utterance, prompt included, that engines are built for; "
        "unused by backend torch.",
    )

    @model_validator(mode="after")
    def _fused_kernels_are_captured(self) -> Self:
        captured = self.backend in ("torch", AUTO) and self.cuda_graphs
        if self.kernels == "fused" and not captured:
            raise InvalidInput(
                f"{self.name}.kernels",
                self.kernels,
                "auto or plain, unless backend is torch with cuda_graphs",
            )
        return self

    @model_validator(mode="after")
    def _backend_runs_on_the_device(self) -> Self:
        if self.backend in ("torch", AUTO):
            return self
        if self.backend == "onnx" and self.dtype not in ("float32", AUTO):
            raise InvalidInput(f"{self.name}.dtype", self.dtype, "float32 with onnx")
        if self.dtype == "bfloat16":
            raise InvalidInput(f"{self.name}.dtype", self.dtype, f"float32 or float16 with {self.backend}")
        require_device(self, self.device, "cpu" if self.backend == "onnx" else "cuda", self.backend)
        return self

    @property
    def devices(self) -> tuple[str, ...]:
        """Each device by itself."""
        return tuple(self.device.split(","))

    def on_each_device(self) -> list[Self]:
        """A copy for each device."""
        return [self.replace(device=device) for device in self.devices]

    @property
    def lookahead(self) -> int | None:
        """Mel frames, or None for as many as the checkpoint's vocoder needs."""
        return whole_or_exact(self.lookahead_frames)

    @property
    def most_batch(self) -> int:
        """``max_batch`` as it is given, or for the kind of the device."""
        return self.max_batch or (GPU_BATCH if self._torch_on_gpu else CPU_BATCH)

    @property
    def may_fuse(self) -> bool:
        """Whether fused kernels may compute in captured graphs, on a GPU that has what they need."""
        return self._torch_on_gpu and self.cuda_graphs and self.kernels != "plain"

    @property
    def _torch_on_gpu(self) -> bool:
        return self.device.startswith(CUDA) and self.backend == "torch"

    @property
    def num_steps(self) -> int | None:
        """``ode_steps`` as it is given; None for those of the checkpoint."""
        return self.ode_steps or None

    def _step_count(self) -> int:
        """``ode_steps`` as it is given, or that of the checkpoint; an InvalidInput if the two, or their
        solvers, differ."""
        schedule = FlowSchedule.of(Layout(self.checkpoint_dir))
        require_solver(self.solver, schedule.meanflow, f"{self.name}.solver")
        return step_count(self.num_steps, schedule.times, f"{self.name}.ode_steps")

    @property
    def hop_growth(self) -> float:
        """Seconds of the next chunk for each second that a listener still has to play."""
        return GPU_HOP_GROWTH if self.device.startswith(CUDA) else CPU_HOP_GROWTH

    @property
    def most_flow_pages(self) -> int:
        """``max_flow_pages`` as it is given, or for the kind of the device."""
        return self.max_flow_pages or (4096 if self.device.startswith(CUDA) else 512)

    @property
    def most_flow_memory(self) -> float:
        """Most of the device's memory that finished speech may take, as a share."""
        return 0.8 if self.device.startswith(CUDA) else 0.4

    def _with_a_backend(self, machine: Machine) -> Self:
        """A copy whose backend is chosen for the device, and the other way round."""
        backend = self._choice(machine).runtime if self.backend == AUTO else self.backend
        device = self.device
        if backend == "onnx" and device == AUTO:
            device = ",".join([CPU] * min(CPU_SCHEDULERS, machine.cores))
        if backend != "onnx" and self.weight_format != "float32":
            limit = f"float32 with backend {backend}; other formats are backend onnx's"
            raise InvalidInput(f"{self.name}.weight_format", self.weight_format, limit)
        return self.replace(backend=backend, device=device)

    def _with_a_page_format(self) -> Self:
        """A copy whose format is chosen.

        Raises:
            InvalidInput: the backend does not keep pages in this format.
        """
        usual, *others = {
            "onnx": ("float32", "float16", "float8"),
            "torch": (self.dtype, EIGHT_BIT_PAGES),
            "tensorrt": (self.dtype,),
        }[self.backend]
        if self.page_format == AUTO:
            return self.replace(page_format=usual)
        if self.page_format not in (usual, *others):
            formats = ", ".join((usual, *others))
            limit = f"{AUTO} or one of {formats} with backend {self.backend} and dtype {self.dtype}"
            raise InvalidInput(f"{self.name}.page_format", self.page_format, limit)
        return self

    def _choice(self, machine: Machine) -> RuntimeChoice:
        for_torch = [
            *changed(f"{self.name}.dtype", self.dtype, "float32"),
            *changed(f"{self.name}.kernels", self.kernels, "plain"),
            *changed(f"{self.name}.page_format", self.page_format, "float32", "float16", "float8"),
        ]
        device = resolved_device(self.device, machine)
        graphs = self.backend_dir / ONNX_GRAPHS
        chooser = RuntimeChooser(device, self.checkpoint_dir, for_torch, graphs)
        return chooser.choose(chooser.family.backends, machine)

    def why(self, machine: Machine) -> Mapping[str, str]:
        return {"backend": self._choice(machine).reason} if self.backend == AUTO else {}

    def resolved(self, machine: Machine) -> Self:
        network = NetworkSettings.resolved(self._with_a_backend(machine), machine)._with_a_page_format()
        return network.replace(
            max_batch=network.most_batch,
            max_flow_pages=network.most_flow_pages,
            ode_steps=self._step_count(),
            backend_dir=self.backend_dir.absolute(),
        )
