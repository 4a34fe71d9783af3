"""The runtime of a network where settings leave it open: torch on a GPU, ONNX Runtime on a CPU if it can."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.settings.model import CPU, MANIFEST
from cosyvoice_runtime.settings.section import AUTO

if TYPE_CHECKING:
    from cosyvoice_runtime.families import Family
    from cosyvoice_runtime.settings.machine import Machine

TORCH: Literal["torch"] = "torch"
ONNX: Literal["onnx"] = "onnx"


class RuntimeChoice(NamedTuple):
    """The chosen runtime, and the reason for the log."""

    runtime: Literal["torch", "onnx"]
    reason: str


class RuntimeChooser(NamedTuple):
    """A choice of the runtime for one network.

    Attributes:
        device: that it computes on.
        checkpoint_dir: whose files tell the family.
        for_torch_alone: settings that ONNX Runtime does not take, as ``key=value``.
        files: where stage 1 writes what ONNX Runtime reads.
    """

    device: str
    checkpoint_dir: Path
    for_torch_alone: Sequence[str]
    files: Path

    @property
    def family(self) -> Family:
        """The family; raises CheckpointError where the directory has the files of several."""
        return Layout(self.checkpoint_dir).family

    def choose(self, runs_on: Sequence[str], machine: Machine) -> RuntimeChoice:
        """The choice among the runtimes that can run the family's network."""
        if not self.device.startswith(CPU):
            return RuntimeChoice(TORCH, f"the device is {self.device}")
        if ONNX not in runs_on:
            return RuntimeChoice(TORCH, f"nothing else runs {self.family.name} on a CPU")
        if self.for_torch_alone:
            return RuntimeChoice(TORCH, f"{', '.join(self.for_torch_alone)} needs it")
        if (self.files / MANIFEST).is_file():
            return RuntimeChoice(ONNX, "the faster one on a CPU")
        if machine.onnx:
            return RuntimeChoice(
                ONNX, f"the faster one on a CPU; its files are not in {self.files} yet, stage 1 writes them"
            )
        if machine.torch:
            reason = f"nothing is in {self.files}, and stage 1 needs the package onnx to write it"
            return RuntimeChoice(TORCH, reason)
        return RuntimeChoice(ONNX, "torch is not installed")


def changed(name: str, given: str, *as_usual: str) -> list[str]:
    """The setting as ``key=value``, unless its value is one of the usual ones."""
    return [] if given in (AUTO, *as_usual) else [f"{name}={given}"]
