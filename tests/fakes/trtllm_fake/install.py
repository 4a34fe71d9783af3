"""Puts the stand-ins where Python and the shell look for the real ones."""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from enum import Enum
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from torch import Tensor

from cosyvoice_runtime.gpu.nvidia import Gpu
from cosyvoice_runtime.lm.engines.tensorrt_llm import LIBRARIES, build, prepare, requests
from trtllm_fake import bindings, network
from trtllm_fake.bindings import FinishReason, IterationStats, KvCacheStats, Request
from trtllm_fake.executor import BaseExecutor

GPU = Gpu("NVIDIA H100 80GB HBM3", "9.0")
COMMAND = """#!/bin/sh
exec {python} {script} "$@"
"""

Model = Callable[[Sequence[int]], Tensor]
"""Logits [V] after these ids."""


class Gate:
    """Lets iterations of the executor pass, or counts them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._permits: float = float("inf")

    def hold(self) -> None:
        """No further iteration."""
        self._set(0)

    def allow(self, iterations: int) -> None:
        self._set(iterations)

    def open(self) -> None:
        self._set(float("inf"))

    def wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._permits > 0)
            self._permits -= 1

    def _set(self, permits: float) -> None:
        with self._changed:
            self._permits = permits
            self._changed.notify_all()


class FakeTrtllm:
    """What a test sees of the stand-in, and steers.

    Attributes:
        load_model: from the engine's directory to the network.
        executors: made so far.
        requests: enqueued so far.
        ended: how the executors' requests have ended, by id.
        used: parameters passed, by class.
        breakdown: raised by `await_responses`.
        open_failures: raised by the next executors as they are made.
        refuse: why the executor does not take a request; empty if it does.
        cache: blocks of the KV cache.
    """

    def __init__(self) -> None:
        self.load_model: Callable[[Path], Model] = lambda path: pytest.fail("no model")
        self.executors: list[BaseExecutor] = []
        self.requests: list[Request] = []
        self.ended: dict[int, FinishReason] = {}
        self.used: dict[str, set[str]] = defaultdict(set)
        self.breakdown: Exception | None = None
        self.open_failures: list[Exception] = []
        self.refuse: Callable[[Request], str] = lambda request: ""
        self.gate = Gate()
        self.cache = KvCacheStats(max_num_blocks=1000, used_num_blocks=7, reused_blocks=3)

    def opening(self) -> None:
        if self.open_failures:
            raise self.open_failures.pop()
        self.breakdown = None

    def statistics(self, active: int, queued: int) -> IterationStats:
        return IterationStats(2.0, active, queued, 12345, self.cache)

    def wait_for_end(self, request_id: int) -> None:
        """Return when the last response to a request waits to be read."""
        self.executors[-1].wait_for_end(request_id)

    @staticmethod
    def read_limits(engine: Path) -> dict[str, int]:
        content = json.loads((engine / "config.json").read_text())
        return {"vocab_size": content["pretrained_config"]["vocab_size"], **content["build_config"]}


def install(monkeypatch: pytest.MonkeyPatch, directory: Path) -> FakeTrtllm:
    """Fake modules, a fake ``trtllm-build`` in ``directory`` on the path, and a GPU."""
    fake = FakeTrtllm()
    executor = type("Executor", (BaseExecutor,), {"fake": fake})
    kinds = [kind for kind in vars(bindings).values() if isinstance(kind, type) and _is_own(kind)]
    recording = {kind.__name__: _recording(fake, kind) for kind in [*kinds, executor]}
    _add_module(monkeypatch, "tensorrt_llm", __version__=LIBRARIES["tensorrt_llm"])
    _add_module(monkeypatch, "tensorrt", __version__=LIBRARIES["tensorrt"])
    _add_module(monkeypatch, "tensorrt_llm.bindings")
    _add_module(monkeypatch, "tensorrt_llm.bindings.executor", **recording)
    _add_module(monkeypatch, "tensorrt_llm.layers", **_classes(network, "Embedding", "ColumnLinear"))
    _add_module(
        monkeypatch, "tensorrt_llm.models", **_classes(network, "QWenForCausalLM", "PretrainedConfig")
    )
    for module in (build, prepare):
        monkeypatch.setattr(module, "present_gpu", lambda: GPU)
    monkeypatch.setattr(requests, "on_stream", lambda pointer: nullcontext())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    _add_command(monkeypatch, directory)
    return fake


def _recording(fake: FakeTrtllm, kind: type) -> type:
    """The class, which remembers the parameters that it was given; its signature stays what it is."""
    if issubclass(kind, Enum):
        return kind
    original = kind.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init(self: Any, *arguments: Any, **options: Any) -> None:
        bound = signature.bind(self, *arguments, **options)
        fake.used[kind.__name__] |= set(bound.arguments) - {"self"}
        original(self, *arguments, **options)

    return type(kind.__name__, (kind,), {"__init__": init})


def _is_own(kind: type) -> bool:
    return kind.__module__ == bindings.__name__


def _add_module(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, name, module)


def _classes(module: ModuleType, *names: str) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names}


def _add_command(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    path = directory / "bin" / "trtllm-build"
    path.parent.mkdir(parents=True)
    script = Path(__file__).with_name("build_command.py")
    path.write_text(COMMAND.format(python=sys.executable, script=script))
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
