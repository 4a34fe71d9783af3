"""Puts the stand-in where Python looks for the real one."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from cosyvoice_runtime.lm.engines import vllm as vllm_engine
from vllm_fake import network, parameters, processors
from vllm_fake.engine import Active, BaseEngine, Executor
from vllm_fake.signatures import RELEASES

GPU_BYTES = 80 * 2**30

Model = Callable[[Tensor, Sequence[int]], Tensor]
"""Logits [rows] after prompt embeddings [positions, hidden] and these ids."""


class Permits:
    """As many steps as tests allow; without end at first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._left = float("inf")

    def allow(self, steps: float) -> None:
        with self._changed:
            self._left = steps
            self._changed.notify_all()

    def acquire(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._left > 0, timeout=120.0)
            self._left -= 1


class FakeVllm:
    """What a test sees of the stand-in, and steers.

    Attributes:
        load_model: from the directory of the model to the network.
        engines: made so far.
        requests: added so far.
        aborted: ids, in order.
        streams: how often a thread took vLLM's stream.
        steps: that may pass.
        early_ends: reasons by id, with which the next step ends requests without a further token.
        breakdown: raised by `step`.
        open_failures: raised by the next engines as they are made.
    """

    def __init__(self) -> None:
        self.load_model: Callable[[str], Model] = lambda directory: pytest.fail("no model")
        self.engines: list[BaseEngine] = []
        self.requests: list[Active] = []
        self.aborted: list[str] = []
        self.streams = 0
        self.steps = Permits()
        self.early_ends: dict[str, str] = {}
        self.breakdown: Exception | None = None
        self.open_failures: list[Exception] = []
        self.registry: dict[str, str] = {}

    def opening(self) -> None:
        if self.open_failures:
            raise self.open_failures.pop()
        self.breakdown = None

    def current_stream(self):
        self.streams += 1

    def get_supported_archs(self):
        return set(self.registry)

    def register_model(self, model_arch, model_cls):
        assert ":" in model_cls, "the class would be imported in every process"
        self.registry[model_arch] = model_cls


def install(monkeypatch: pytest.MonkeyPatch, release: str = RELEASES[0]) -> FakeVllm:
    """Fake modules of a release, and a GPU."""
    fake = FakeVllm()
    parameters.use(release)
    kinds = {
        "EngineArgs": type("EngineArgs", (parameters.EngineArgs,), {"registry": fake.registry}),
        "LLMEngine": type("LLMEngine", (BaseEngine,), {"fake": fake}),
        "SamplingParams": parameters.SamplingParams,
        "ModelRegistry": fake,
    }
    _add_module(monkeypatch, "vllm", __version__=release, **kinds)
    _add_module(monkeypatch, "vllm.config", VllmConfig=SimpleNamespace)
    _add_module(monkeypatch, "vllm.inputs.engine", embeds_input=parameters.embeds_input)
    _add_module(monkeypatch, "vllm.sampling_params", RequestOutputKind=parameters.RequestOutputKind)
    _add_module(monkeypatch, "vllm.utils.torch_utils", current_stream=fake.current_stream)
    _add_module(monkeypatch, "vllm.v1.executor", Executor=Executor)
    _add_module(monkeypatch, "vllm.v1.sample.logits_processor", **_public(processors))
    layers, models = "vllm.model_executor.layers", "vllm.model_executor.models"
    _add_module(monkeypatch, f"{layers}.vocab_parallel_embedding", ParallelLMHead=network.ParallelLMHead)
    _add_module(monkeypatch, f"{models}.qwen2", Qwen2ForCausalLM=network.Qwen2ForCausalLM)
    _add_module(monkeypatch, f"{models}.utils", maybe_prefix=network.maybe_prefix)
    monkeypatch.setattr(vllm_engine, "version", lambda name: release)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    _add_gpu(monkeypatch)
    return fake


def _add_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(total_memory=GPU_BYTES)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


def _add_module(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    parent, _, _ = name.rpartition(".")
    if parent and parent not in sys.modules:
        _add_module(monkeypatch, parent)
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None, is_package=True)
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, name, module)


def _public(module: ModuleType) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__
    }
