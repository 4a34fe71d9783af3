"""The forms of the Triton language's kernels that some code launches, found without a GPU."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.driver import CudaLauncher
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from cosyvoice_runtime.gpu.kernels import launch
from cosyvoice_runtime.gpu.nvidia import Version

_run = JITFunction.run
"""The language's own way to a kernel's form, which compiles it."""

META = "meta"
"""Torch's device whose tensors have shapes, types and strides, and no memory."""
ALIGNED = 16
"""Bytes of a multiple of which an address tells the language that a kernel may load as many at once."""
WARP = 32
NO_STREAM = 0


class Compiled(NamedTuple):
    """A compiled form of a kernel.

    Attributes:
        sizes: its arguments that are no tensors, and how it is launched.
        shared: bytes of shared memory.
        registers, spilled: of a thread; bytes of the latter. 0 where nobody asked for them.
        failure: why it can't be compiled; empty if it can.
    """

    kernel: str
    sizes: str
    shared: int = 0
    registers: int = 0
    spilled: int = 0
    failure: str = ""


class SentTensor(NamedTuple):
    """A tensor as it is sent to another process: only what a kernel's form depends on."""

    dtype: torch.dtype
    aligned: bool

    def received(self) -> torch.Tensor:
        """Another tensor like it, without memory."""
        return torch.empty(2, dtype=self.dtype, device=META)[0 if self.aligned else 1 :]


@dataclass(frozen=True)
class Form:
    """A launch that needs a form of a kernel which none before it does; ``key`` tells forms apart.

    It can be sent to another process, where its tensors are others of the same types and alignment.
    """

    key: str
    kernel: JITFunction[Any]
    grid: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def __reduce__(self) -> tuple[Any, ...]:
        packed = tuple(
            SentTensor(each.dtype, each.data_ptr() % ALIGNED == 0) if isinstance(each, torch.Tensor) else each
            for each in self.arguments
        )
        return _received, (self.key, self.kernel.fn.__module__, self.name, self.grid, packed, self.options)

    def compile(self, measured: bool = False) -> Compiled:
        """Compile it into the Triton language's cache.

        Args:
            measured: also ask for registers and spilled bytes.
        """
        try:
            made = _run(self.kernel, *self.arguments, grid=self.grid, warmup=True, **self.options)
        except Exception as error:  # The compiler raises errors of many kinds.
            return Compiled(self.name, self.sizes, failure=f"{type(error).__name__}: {str(error)[:300]}")
        _make_launcher(made)
        used = _resources(made.asm["cubin"]) if measured else (0, 0)
        return Compiled(self.name, self.sizes, made.metadata.shared, *used)

    @property
    def name(self) -> str:
        """The name of its kernel."""
        return str(self.kernel.fn.__name__)

    @property
    def sizes(self) -> str:
        """Its arguments that are no tensors, and how it is launched."""
        others = [argument for argument in self.arguments if not isinstance(argument, torch.Tensor)]
        return f"{others} {self.options}"


def _received(
    key: str, module: str, name: str, grid: Any, packed: tuple[Any, ...], options: dict[str, Any]
) -> Form:
    """A form that another process sent."""
    launcher = getattr(import_module(module), name)
    arguments = tuple(each.received() if isinstance(each, SentTensor) else each for each in packed)
    return Form(key, getattr(launcher, "kernel", launcher), grid, arguments, options)


class NoGpu:
    """The part of the Triton language's driver that compiling asks."""

    def __init__(self, capability: Version) -> None:
        self._target = GPUTarget("cuda", 10 * capability[0] + capability[1], WARP)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return int(self._target.arch)  # Kernels remember their compiled forms by device.

    def get_current_stream(self, _device: int) -> int:
        return NO_STREAM

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    @staticmethod
    def is_active() -> bool:
        return True


def compile_for(capability: Version) -> None:
    """Let this process compile for GPUs of a compute capability, and launch nothing from now on."""
    driver.set_active(NoGpu(capability))


@contextmanager
def collecting(found: Callable[[Form], None]) -> Iterator[None]:
    """Give ``found`` a form for each launch in the block that would have to be compiled; nothing is launched.

    Tensors may be on torch's device ``meta``, which gives them no memory.
    """
    keys: set[str] = set()
    run, found_of = JITFunction.run, launch.Found.of

    def collect(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
        del warmup
        new: list[Form] = []

        def is_known(*, key: str, **_: Any) -> bool:
            own = f"{kernel.fn.__name__} {key}"
            if own not in keys:
                keys.add(own)
                new.append(Form(own, kernel, grid, arguments, options))
            return True  # Nothing is compiled now.

        with _hook(is_known):
            run(kernel, *arguments, grid=grid, warmup=True, **options)
        for form in new:
            found(form)

    nothing = launch.Found(_launch_nothing, (), together=False)
    JITFunction.run = collect
    launch.Found.of = classmethod(lambda *_: nothing)  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        JITFunction.run, launch.Found.of = run, found_of  # type: ignore[method-assign]


@contextmanager
def _hook(is_known: Callable[..., bool]) -> Iterator[None]:
    """Ask a function before each compilation, which is left out where it returns true."""
    before, knobs.runtime.jit_cache_hook = knobs.runtime.jit_cache_hook, is_known
    try:
        yield
    finally:
        knobs.runtime.jit_cache_hook = before


def _make_launcher(made: Any) -> None:
    """Let the language compile what launches a kernel, where it does that for each signature (3.6)."""
    if triton.__version__.startswith("3.6."):
        with suppress(Exception):  # It needs a C compiler, and is tried again at the launch.
            CudaLauncher(made.src, made.metadata)


def _launch_nothing(*_: Any) -> None:
    """Stand in for a compiled launcher."""


def _resources(cubin: bytes) -> tuple[int, int]:
    """Registers and spilled bytes of a thread, which NVIDIA's tool reads from machine code."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(cubin)
        told = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True).stdout
    registers, spilled = re.search(r"REG:(\d+)", told), re.search(r"STACK:(\d+)", told)
    return int(registers[1]) if registers else 0, int(spilled[1]) if spilled else 0
