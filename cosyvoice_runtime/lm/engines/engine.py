"""The interface of engines for the scheduler, the choice of one, and checks that several engines share."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Protocol, runtime_checkable

from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu
from cosyvoice_runtime.lm import Prompt, SamplingOptions
from cosyvoice_runtime.lm.cache import CachePool
from cosyvoice_runtime.lm.generation import Progress
from cosyvoice_runtime.lm.text_rows import TextRows
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


class EngineError(CosyVoiceError):
    """The engine broke down, and the requests in it are lost."""


class LmEngine(Protocol):
    """Decodes several utterances together; called by one thread only.

    A `CosyVoiceError` from `add` concerns that utterance; any other exception, the whole engine.

    Attributes:
        slots: utterances at a time.
        prefill_batch: most utterances that are added before a step, whose prompts one pass feeds.
    """

    slots: int
    prefill_batch: int

    def add(self, prompt: Prompt, options: SamplingOptions) -> Hashable:
        """Take a slot for an utterance; the handle names it from now on."""

    def step(self) -> Sequence[Progress]:
        """Advance all utterances; a call may bring nothing for some of them."""

    def cancel(self, handle: Hashable) -> None:
        """Free the slot of an utterance; no progress of it follows.

        An utterance of which a step brought several progresses may have ended with the last of them.
        """

    def close(self) -> None:
        """Free all memory; also called after a breakdown."""


@runtime_checkable
class SelectiveEngine(LmEngine, Protocol):
    """An engine that can advance some utterances while others wait."""

    def step_some(self, first: Collection[Hashable]) -> Sequence[Progress]:
        """Advance these utterances and those whose prompts are not fed; others may wait."""


class TextEngine(LmEngine, Protocol):
    """An engine that also takes text in pieces, while it speaks, and may tell what tokens look at in it."""

    def add_open(self, prompt: Prompt, options: SamplingOptions) -> Hashable:
        """Take a slot for an utterance whose text is still to come; the prompt's own text is empty."""

    def push_text(self, handle: Hashable, ids: Sequence[int]) -> None:
        """Add text to an utterance that runs."""

    def end_text(self, handle: Hashable) -> None:
        """Say that no further text follows; some has been pushed."""

    def waits_for_text(self, handle: Hashable) -> bool:
        """Whether a step does nothing for this utterance before more text comes."""

    def follow(self, handle: Hashable, text: slice) -> TextRows | None:
        """Tell what the tokens of an utterance look at in its text; None where that is not seen.

        It is called before the first step of the utterance.

        Args:
            text: positions of the text to speak.
        """


OpenEngine = Callable[[], LmEngine]
"""Makes a fresh engine from weights already loaded, at the start and after a breakdown."""


def prepare_engine(settings: TensorrtLlmSettings, shared: SharedGpu | None = None) -> OpenEngine:
    """Load the weights for the engine that the settings name.

    Args:
        shared: the GPU, if token2wav computes on it in this process, which engine torch alone allows.

    Raises:
        InvalidInput: a library is not installed, or the engine can't work with these settings.
        CheckpointError: the weights can't be read.
    """
    require_runs(settings)
    check_at_start(settings)
    prepare = importlib.import_module(ENGINES[settings.engine]).prepare
    open_engine: OpenEngine = prepare(settings) if shared is None else prepare(settings, shared)
    return open_engine


def see_only(device: str, engine: str) -> None:
    """Hide every GPU but the one that ``device`` names (``cuda`` or ``cuda:N``) from this process.

    TensorRT-LLM opens the first visible GPU when it is imported, and vLLM takes the first for its worker, so
    this is called before them. The GPU is number 0 from then on.

    Args:
        engine: name of the engine that asks.

    Raises:
        InvalidInput: it is no GPU, or hidden already, or CUDA is in use here and sees others as well.
    """
    import torch  # Engine onnx needs no torch, whose import takes seconds.

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
    """Check the settings of the cache, and raise an InvalidInput where it is too small.

    Args:
        max_positions: most positions that the network knows.
        shares_pages: whether a request may wait for pages that others hold, so that room for the longest one
            is enough.
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
    """Pages that all requests share; None where each has a slot of its own.

    Args:
        steps_read_pages: whether steps read pages in place; others copy them, which would slow slots that all
            fit.
    """
    if settings.kv_cache_tokens < settings.max_slots * settings.max_sequence_tokens:
        return CachePool.of(settings.kv_cache_tokens)
    if not steps_read_pages:
        return None
    longest = CachePool.of(settings.max_sequence_tokens)  # A slot can't take more pages.
    return longest._replace(pages=settings.max_slots * longest.pages)
