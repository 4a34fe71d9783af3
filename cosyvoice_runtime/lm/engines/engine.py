"""What the scheduler asks of an engine, and the choice of one."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.gpu.partitions.shared_gpu import SharedGpu
from cosyvoice_runtime.lm import FinishReason, Prompt, SamplingOptions
from cosyvoice_runtime.settings import TensorrtLlmSettings
from cosyvoice_runtime.settings.gpu_asked import check_at_start
from cosyvoice_runtime.settings.served_family import require_engine

ENGINES = {
    "torch": "cosyvoice_runtime.lm.engines.torch.engine",
    "onnx": "cosyvoice_runtime.lm.engines.onnx.engine",
    "tensorrt_llm": "cosyvoice_runtime.lm.engines.tensorrt_llm.prepare",
    "vllm": "cosyvoice_runtime.lm.engines.vllm.startup",
}
"""Modules with a function ``prepare(settings) -> OpenEngine``, imported when chosen."""


TAKE_OPEN_TEXT = ("torch", "onnx")
"""Those that are a :class:`TextEngine`."""


class EngineError(CosyVoiceError):
    """The engine broke down; the requests it was working on are lost."""


@dataclass(slots=True)  # one for each token: a NamedTuple takes twice as long
class Progress:
    """What a step brought to one utterance.

    Attributes:
        handle: as `LmEngine.add` returned it.
        tokens: new speech tokens.
        finish_reason: set once, with the last tokens; the slot is free then.
        error: what went wrong with this utterance alone, if the reason is ``error``.
    """

    handle: Hashable
    tokens: Sequence[int]
    finish_reason: FinishReason | None = None
    error: CosyVoiceError | None = None


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
        """Free the slot of an utterance that runs; no progress of it follows."""

    def close(self) -> None:
        """Give everything back; also called after a breakdown."""


class TextEngine(LmEngine, Protocol):
    """An engine that also takes the text of an utterance in pieces, while it speaks."""

    def add_open(self, prompt: Prompt, options: SamplingOptions) -> Hashable:
        """As `add`, for an utterance whose text is still to come; the prompt's own text is empty."""

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
    require_engine(settings)
    check_at_start(settings)
    prepare = importlib.import_module(ENGINES[settings.engine]).prepare
    open_engine: OpenEngine = prepare(settings) if shared is None else prepare(settings, shared)
    return open_engine
