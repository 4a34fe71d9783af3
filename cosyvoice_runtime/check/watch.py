"""The search for the first NaN or infinity, in modules of torch and sessions of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cosyvoice_runtime.errors import FLOW, SPEAKER_ENCODER, SPEECH_LM, SPEECH_TOKENIZER, VOCODER

if TYPE_CHECKING:
    from torch import nn

GRAPHS = {
    "model": SPEECH_LM,
    "prompt": SPEECH_LM,
    "flow": FLOW,
    "hift": VOCODER,
    "speech": SPEECH_TOKENIZER,
    "campplus": SPEAKER_ENCODER,
}
"""The stages by the beginning of their graphs' file names."""
PUBLISHED = (SPEECH_TOKENIZER, SPEAKER_ENCODER)
"""The stages that run a graph of the checkpoint; all values in it are checked."""
STORED = ("present_", "keys_after", "values_after")
"""The beginnings of the names of outputs that are memory for later runs, partly not written yet."""


class NumberWatch:
    """Notes which outputs are not finite.

    Attributes:
        first: where the first value that is not finite came from, by stage.
    """

    def __init__(self) -> None:
        self.first: dict[str, str] = {}

    def look(self, stage: str, place: str, finite: bool) -> None:
        """Note a place whose output is there."""
        if not finite:
            self.first.setdefault(stage, place)

    @contextmanager
    def modules(self, stage: str, network: nn.Module) -> Iterator[None]:
        """Check the output of each module of a network; inner modules come first."""
        hooks = [
            module.register_forward_hook(
                lambda _, __, output, name=name: self.look(stage, name, _is_finite(output))
            )
            for name, module in network.named_modules()
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    @contextmanager
    def sessions(self) -> Iterator[None]:
        """Check the outputs of the sessions that are opened within the block."""
        import onnxruntime

        plain, watch = onnxruntime.InferenceSession, self

        class WatchedSession(plain):  # type: ignore[misc, valid-type]
            def __init__(self, path: Path, *arguments: Any, **options: Any) -> None:
                self.file = Path(path)
                self.stage = GRAPHS[self.file.stem.partition("_")[0]]
                inner = self.stage in PUBLISHED
                super().__init__(_with_inner_values(self.file) if inner else path, *arguments, **options)
                self.own = [port.name for port in super().get_outputs()]
                self.given = _outputs(self.file) if inner else self.own

            def get_outputs(self) -> list[Any]:
                return [port for port in super().get_outputs() if port.name in self.given]

            def run(self, names: Any, inputs: Any, options: Any = None) -> list[Any]:
                found = dict(zip(self.own, super().run(self.own, inputs, options), strict=True))
                for name, value in found.items():
                    finite = _has_no_nan(value) if name not in self.given else _is_finite(value)
                    watch.look(self.stage, f"{self.file.name}: {name}", finite)
                return [found[name] for name in names or self.given]

            def io_binding(self) -> Any:
                return WatchedBinding(self)

            def run_with_iobinding(self, binding: Any, options: Any = None) -> None:
                super().run_with_iobinding(binding, options)
                for name, value in zip(binding.names, binding.get_outputs(), strict=True):
                    if not name.startswith(STORED):
                        watch.look(self.stage, f"{self.file.name}: {name}", _is_finite(value.numpy()))

        class WatchedBinding(onnxruntime.IOBinding):
            def __init__(self, session: Any) -> None:
                super().__init__(session)
                self.names: list[str] = []

            def bind_output(self, name: str, *arguments: Any, **options: Any) -> None:
                self.names.append(name)
                super().bind_output(name, *arguments, **options)

        onnxruntime.InferenceSession = WatchedSession
        try:
            yield
        finally:
            onnxruntime.InferenceSession = plain


def _is_finite(output: Any) -> bool:
    """Whether arrays or tensors, also in lists and tuples, hold neither NaN nor infinity."""
    if isinstance(output, tuple | list):
        return all(map(_is_finite, output))
    if isinstance(output, np.ndarray):
        return not np.issubdtype(output.dtype, np.floating) or bool(np.isfinite(output).all())
    if hasattr(output, "is_floating_point"):
        return not output.is_floating_point() or bool(output.isfinite().all())
    return True


def _has_no_nan(value: Any) -> bool:
    """Checks a value within a graph, where negative infinity is a mask's."""
    return not np.issubdtype(value.dtype, np.floating) or bool((value < np.inf).all())


def _outputs(path: Path) -> list[str]:
    import onnx

    return [port.name for port in onnx.load(path, load_external_data=False).graph.output]


def _with_inner_values(path: Path) -> bytes:
    """The graph with the outputs of all its nodes as outputs, in their order."""
    import onnx

    model = onnx.load(path)
    given = {port.name for port in model.graph.output}
    inner = [name for node in model.graph.node for name in node.output if name and name not in given]
    model.graph.output.extend([onnx.ValueInfoProto(name=name) for name in inner])
    content: bytes = model.SerializeToString()
    return content
