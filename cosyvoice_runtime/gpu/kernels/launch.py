"""Fast launches of kernels: the compiled form is found by the arguments at once.

The Triton language finds a kernel's compiled form by the type and alignment of every argument, and asks the
driver about every pointer, which takes several times as long as the launch. A call of the flow has 3,000
launches, and at a start some fifty sizes of it are captured, so that is most of their time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import triton
from torch import Tensor
from triton.runtime import JITFunction, driver
from triton.runtime.jit import DependenciesFinder

LOW = 15
"""The address bits that say whether a kernel may load 16 bytes at once, for which it is specialised."""
PINNED = "3.7.1"
"""The version of the Triton language in requirements/torch.in, with which this was measured."""
KNOWN = ("3.6.", "3.7.")
"""The versions whose launchers take these arguments; others use the language's own lookup."""
MOST = 1 << 14
"""The most remembered launches of a kernel; a few hundred are usual."""

_log = logging.getLogger(__name__)


class Found(NamedTuple):
    """A compiled kernel on a device.

    Attributes:
        launch: its compiled launcher.
        fixed: its arguments between the stream and the kernel's own.
        together: whether the launcher takes the kernel's arguments as one tuple (3.7) or separately (3.6).
    """

    launch: Callable[..., None]
    fixed: tuple[Any, ...]
    together: bool

    @classmethod
    def of(cls, compiled: Any) -> Found | None:
        """The compiled kernel; None if it needs scratch memory at every launch."""
        launcher = compiled.run
        if launcher.global_scratch_size or launcher.profile_scratch_size:
            return None
        function = compiled.function, launcher.launch_cooperative_grid, launcher.launch_pdl
        no_scratch, no_hooks, metadata = (None, None), (None, None, None), compiled.packed_metadata
        if triton.__version__.startswith("3.6."):
            return cls(launcher.launch, (*function, *no_scratch, metadata, *no_hooks), together=False)
        signature = launcher.arg_annotations, launcher.kernel_signature
        return cls(launcher.launch, (*function, metadata, *no_hooks, *no_scratch, *signature), together=True)


class Launcher:
    """Launches a kernel as the Triton language does: ``kernel[grid](*arguments, **options)``.

    What was compiled is found by the arguments themselves, of tensors their type and alignment alone: equal
    ones are compiled alike. Tensors come first, an argument is of one type in all launches, and options are
    in one order.
    """

    def __init__(self, kernel: JITFunction[Any]) -> None:
        self.kernel = kernel
        self._tensors = 0
        self._found: dict[tuple[Any, ...], Found] = {}

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return partial(self._launch, grid)

    def _launch(self, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
        active, count = driver.active, self._tensors or self._counted(arguments)
        device = active.get_current_device()
        tensors, others = arguments[:count], arguments[count:]
        addresses = [tensor.data_ptr() for tensor in tensors]
        key = (
            others, device, *options.values(),
            *[tensor.dtype for tensor in tensors], *[address & LOW for address in addresses],
        )  # fmt: skip
        found = self._found.get(key)
        if found is None:
            self._first(key, grid, arguments, options)
        else:
            x, y, z = (*grid, 1, 1)[:3]
            stream = active.get_current_stream(device)
            own = ((*addresses, *others),) if found.together else (*addresses, *others)
            found.launch(x, y, z, stream, *found.fixed, *own)

    def _counted(self, arguments: Sequence[Any]) -> int:
        """Count the tensors, which precede all other arguments in every launch."""
        others = (place for place, argument in enumerate(arguments) if not isinstance(argument, Tensor))
        self._tensors = next(others, len(arguments))
        return self._tensors

    def _first(
        self, key: tuple[Any, ...], grid: tuple[int, ...], arguments: Sequence[Any], options: dict[str, Any]
    ) -> None:
        """Launch a kernel through the language, which compiles it if necessary, and remember it.

        Raises:
            TypeError: a tensor is not among the leading arguments, so it would be kept in the cache's key.
        """
        if any(isinstance(argument, Tensor) for argument in arguments[self._tensors :]):
            raise TypeError(f"a tensor is not among the first {self._tensors} arguments, where tensors are")
        found = Found.of(self.kernel.run(*arguments, grid=grid, warmup=False, **options))
        if len(self._found) >= MOST:
            self._found.clear()
        if found is not None:
            self._found[key] = found


def _settle_keys() -> None:
    """Let a kernel be found in the language's cache whatever was compiled before it in a process.

    A kernel's key has the global constants of the functions that it calls, but only of those whose own keys
    are known already (``DependenciesFinder`` of 3.6 and 3.7). Here their keys are computed first.
    """
    update = getattr(DependenciesFinder, "_update_hash", None)
    if update is None:
        return

    def update_after(finder: Any, called: Any) -> None:
        _ = called.cache_key
        update(finder, called)

    DependenciesFinder._update_hash = update_after


_settle_keys()


def cdiv(total: int, each: int) -> int:
    """Divide and round up; the language's own function is made for its compiler and is slow here."""
    return -(-total // each)


def next_power_of_2(number: int) -> int:
    """The next power of two; the language's own function is slow here as well."""
    return 1 << (number - 1).bit_length()


def launched(kernel: Any) -> Any:
    """Make a kernel launch quickly from Python, where this version of the language is known.

    The interpreter, which takes kernels in tests without a GPU, launches nothing.
    """
    if not isinstance(kernel, JITFunction):
        return kernel
    if not triton.__version__.startswith(KNOWN):
        _log.info("kernels are launched by triton %s, not by us: captures take longer", triton.__version__)
        return kernel
    return Launcher(kernel)
