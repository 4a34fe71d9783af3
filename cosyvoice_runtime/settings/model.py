"""Fields that models share. A field's name is its key in ``parameters`` and its ``${placeholder}``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.settings.section import AUTO, AUTO_NUMBER, EXACT, OR_AUTO, Accepted, Section

if TYPE_CHECKING:
    from typing import Self

    from cosyvoice_runtime.settings.machine import Machine

CUDA = "cuda"
CPU, GPU = "cpu", rf"{CUDA}(:[0-9]+)?"
"""Patterns of a device's name."""
Device = Annotated[str, Field(pattern=rf"^({AUTO}|{CPU}|{GPU})$"), Accepted(f"cpu, cuda or cuda:N or {AUTO}")]
BACKEND_DIR = Path("engines/networks")
MANIFEST = "manifest.json"
"""Name of the file that stage 1 writes last into each of its directories."""


class ModelSettings(Section):
    """Fields that every model has."""

    checkpoint_dir: Path = Field(
        Path("checkpoint"), description="Directory of the weights, the tokenizer and the configuration."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe messages that a model writes to the server's log."
    )
    threads: Annotated[int, Field(ge=1, le=256), OR_AUTO] = Field(
        AUTO_NUMBER,
        description="CPU threads of one operation; auto: [measured](engines.md#threads) for the speech LM "
        "and token2wav on ONNX Runtime, half the cores on torch on a CPU, else 1.",
    )

    def resolved(self, machine: Machine) -> Self:
        threads = self.threads or self._auto_threads(machine)
        return self.replace(checkpoint_dir=self.checkpoint_dir.absolute(), threads=threads)

    def _auto_threads(self, machine: Machine) -> int:  # noqa: ARG002 - networks override it
        return 1


class NetworkSettings(ModelSettings):
    """Fields of a model that runs a network on a device."""

    AUTO_GPU_DTYPE: ClassVar[str] = "float32"

    device: Device = Field(AUTO, description="Where the network runs.")
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = Field(
        AUTO, description="Number format of weights and activations."
    )

    def resolved(self, machine: Machine) -> Self:
        device = resolved_device(self.device, machine)
        gpu_dtype = "float32" if device.startswith("cpu") else self.AUTO_GPU_DTYPE
        dtype = gpu_dtype if self.dtype == AUTO else self.dtype
        return super().resolved(machine).replace(device=device, dtype=dtype)

    def _auto_threads(self, machine: Machine) -> int:
        on_cpu = resolved_device(self.device, machine).startswith("cpu")
        # Beside a GPU the CPU has small operations only, which threads slow down.
        return max(1, machine.cores // 2) if on_cpu else 1


class BatchedSettings(ModelSettings):
    """Fields of a model behind Triton's dynamic batcher."""

    max_batch: int = Field(8, ge=1, le=1024, description="Requests in one call.")
    max_queue_size: int = Field(
        256, ge=1, le=100_000, description="Requests that may wait; one more is refused with UNAVAILABLE."
    )


def whole_or_exact(text: str) -> int | None:
    """The number, or None for ``exact``."""
    return None if text == EXACT else int(text)


def resolved_device(wanted: str, machine: Machine) -> str:
    return ("cuda" if machine.gpu else "cpu") if wanted == AUTO else wanted


def gpu_number(device: str) -> int | None:
    """Number of the GPU in ``cuda`` or ``cuda:N``; None for a CPU."""
    kind, _, number = device.partition(":")
    return int(number or 0) if kind == "cuda" else None


def require_device(section: Section, device: str, kind: str, backend: str) -> None:
    """Refuse a device of a kind on which the backend does not run."""
    if device != AUTO and not device.startswith(kind):
        raise InvalidInput(f"{section.name}.device", device, f"{kind} with backend {backend}")


def require_order(section: Section, low: str, high: str) -> None:
    """Refuse a field ``low`` that is greater than the field ``high``."""
    if getattr(section, low) > getattr(section, high):
        limit = f"at most {high}, which is {getattr(section, high)}"
        raise InvalidInput(f"{section.name}.{low}", getattr(section, low), limit)
