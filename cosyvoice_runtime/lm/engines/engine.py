"""The interface of engines for the scheduler, the choice of one, and checks that several engines share."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.cache import CachePool
from cosyvoice_runtime.lm.generation import Progress
from cosyvoice_runtime.settings import TensorrtLlmSettings
from cosyvoice_runtime.settings.machine import check_at_start
from cosyvoice_runtime.settings.served_family import require_runs

ENGINES = {
    "torch": "cosyvoice_runtime.lm.engines.torch",
    "onnx": "cosyvoice_runtime.lm.engines.onnx",
    "tensorrt_llm": "cosyvoice_runtime.lm.engines.tensorrt_llm.prepare",
    "vllm": "cosyvoice_runtime.lm.engines.vllm.engine",
}
"""Modules with a function ``prepare(settings) -> OpenEngine``, imported when chosen."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
TAKE_OPEN_TEXT = ("torch", "onnx")
"""Engines that are a :class:`TextEngine`."""


class EngineError(CosyVoiceError):
    """The engine broke down; the requests it was working on are lost."""


class LmEngine(Protocol):
    """Decodes several utterances together; called by one thread only.

    A `CosyVoiceError` from `add` concerns that utterance; any other exception, the whole engine.

    Attributes:
        slots: utterances at a time.
        prefill_batch: utterances added before a step at most: whose prompts it feeds in one pass.
    """

    slots: int
    prefill_batch: int

    def add(self, prompt: Prompt, options: SamplingOptions) -> Hashable:
        """Take a slot for an utterance; the handle names it from now on."""

    def step(self) -> Sequence[Progress]:
        """Go on with all; waits for what has been begun, so that not every call brings something."""

    def cancel(self, handle: Hashable) -> None:
        """Free the slot of an utterance; no progress of it follows.

        A step that brought several progresses of it may have ended it with the last of them.
        """

    def close(self) -> None:
        """Give everything back; also called after a breakdown."""


class TextEngine(LmEngine, Protocol):
    """An engine that also takes the text of an utterance in pieces, while it speaks."""

    def add_open(self, prompt: Prompt, options: SamplingOptions) -> Hashable:
        """Take a slot for an utterance whose text is still to come; the prompt's own text is empty."""

    def push_text(self, handle: Hashable, ids: Sequence[int]) -> None:
        """Add text to an utterance that runs."""

    def end_text(self, handle: Hashable) -> None:
        """Say that no further text follows; some has been pushed."""

    def waits_for_text(self, handle: Hashable) -> bool:
        """Whether a step does nothing for this utterance before more text comes."""


OpenEngine = Callable[[], LmEngine]
"""Makes a fresh engine from weights already loaded: at the start, and again after a breakdown."""


def prepare_engine(settings: TensorrtLlmSettings, shared: SharedGpu | None = None) -> OpenEngine:
    """Load the weights for the engine that the settings name.

    Args:
        shared: the GPU, if token2wav computes on it in this process; engine torch alone does that.

    Raises:
        InvalidInput: what it needs is not installed, or it can't work with these settings.
        CheckpointError: the weights can't be read.
    """
    require_runs(settings)
    check_at_start(settings)
    prepare = importlib.import_module(ENGINES[settings.engine]).prepare
    open_engine: OpenEngine = prepare(settings) if shared is None else prepare(settings, shared)
    return open_engine


def see_only(device: str, engine: str) -> None:
    """Hide every GPU but the one that ``device`` names (``cuda`` or ``cuda:N``) from this process.

    TensorRT-LLM opens the first GPU it sees when it is imported, before an executor can be told another one,
    and vLLM takes the first for the one worker of its engine: so this has to come first. The GPU is number 0
    from then on.

    Args:
        engine: name of the engine that asks.

    Raises:
        InvalidInput: it is no GPU, or hidden already, or CUDA is in use here and sees others as well.
    """
    import torch  # engine onnx does without

    kind, _, number = device.partition(":")
    if kind != "cuda":
        raise InvalidInput("tensorrt_llm.device", device, f"engine {engine} needs cuda or cuda:N")
    index, listed = int(number or 0), os.environ.get(VISIBLE)
    names = [str(number) for number in range(index + 1)] if listed is None else listed.split(",")
    if index >= len(names):
        raise InvalidInput("tensorrt_llm.device", device, f"{VISIBLE} is {listed}")
    if index and torch.cuda.is_initialized():
        raise InvalidInput("tensorrt_llm.device", device, "CUDA is in use in this process already")
    os.environ[VISIBLE] = names[index]


def check_cache_room(settings: TensorrtLlmSettings, max_positions: int, shares_pages: bool = False) -> None:
    """Check the settings of the cache.

    Args:
        max_positions: most positions that the network knows.
        shares_pages: a request may wait for pages that others hold, so that room for the longest one will do.

    Raises:
        InvalidInput: requests may be longer than the network knows, or the cache is too small for them.
    """
    longest, cache = settings.max_sequence_tokens, settings.kv_cache_tokens
    if longest > max_positions:
        limit = f"the network has {max_positions} positions"
        raise InvalidInput("tensorrt_llm.max_sequence_tokens", longest, limit)
    if shares_pages and cache < longest:
        limit = f"at least max_sequence_tokens, which is {longest}"
        raise InvalidInput("tensorrt_llm.kv_cache_tokens", cache, limit)
    if not shares_pages and cache < settings.max_slots * longest:
        needed = f"max_slots * max_sequence_tokens, which is {settings.max_slots * longest}"
        raise InvalidInput("tensorrt_llm.kv_cache_tokens", cache, f"engine {settings.engine} needs {needed}")


def shared_pool(settings: TensorrtLlmSettings, steps_read_pages: bool) -> CachePool | None:
    """Pages for all requests; None: each has its own slot.

    Args:
        steps_read_pages: other steps copy what they read of pages, which slots that all fit would only slow.
    """
    if settings.kv_cache_tokens < settings.max_slots * settings.max_sequence_tokens:
        return CachePool.of(settings.kv_cache_tokens)
    if not steps_read_pages:
        return None
    longest = CachePool.of(settings.max_sequence_tokens)  # more could not be taken
    return longest._replace(pages=settings.max_slots * longest.pages)
