"""What decodes speech tokens in the offline benchmark."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cosyvoice_runtime.checkpoint.huggingface import read_merged
from cosyvoice_runtime.checkpoint.layout import Layout
from cosyvoice_runtime.checkpoint.sections import load_config
from cosyvoice_runtime.checkpoint.tensors import load_tensors
from cosyvoice_runtime.errors import InvalidInput
from cosyvoice_runtime.lm import (
    BatchDecoder,
    FinishReason,
    Generation,
    Prompt,
    SamplingOptions,
    SpeechLM,
)
from cosyvoice_runtime.lm.generation import TokenLimits
from cosyvoice_runtime.lm.prompt import num_positions

MERGED_WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Job:
    """One piece of text for the speech LM."""

    prompt: Prompt
    options: SamplingOptions


@dataclass(frozen=True)
class Speech:
    """Its speech tokens, and why they ended."""

    tokens: list[int]
    finish_reason: FinishReason


class Engine(Protocol):
    """Decodes many pieces of text."""

    def generate(self, jobs: Sequence[Job], done: Callable[[], None]) -> list[Speech]:
        """The speech of every job, in their order; ``done`` is called as each ends."""


@dataclass(frozen=True)
class EngineOptions:
    """How an engine runs.

    Attributes:
        checkpoint: directory of the checkpoint, whose configuration holds for all weights.
        weights: another directory to take the speech LM from: a checkpoint, or Hugging Face's form.
        batch_size: pieces decoded at a time.
    """

    checkpoint: Path
    weights: Path | None
    batch_size: int


class TorchEngine:
    """This library's own network and in-flight batching, on the device and in the dtype of ``lm``."""

    def __init__(self, lm: SpeechLM, options: EngineOptions) -> None:
        self._lm = lm if options.weights is None else _load(options.weights, options.checkpoint, lm)
        self._batch_size = options.batch_size

    def generate(self, jobs: Sequence[Job], done: Callable[[], None]) -> list[Speech]:
        """A job that ends leaves its place to the next one at once."""
        decoder = BatchDecoder(self._lm, min(self._batch_size, len(jobs)), max(map(_positions, jobs)))
        waiting = deque(enumerate(jobs))
        running: dict[Generation, int] = {}
        speech: dict[int, Speech] = {}
        while waiting or running:
            while waiting and decoder.free_slots:
                number, job = waiting.popleft()
                running[decoder.add(job.prompt, job.options)] = number
            for generation, _, reason in decoder.step():
                if reason is None:
                    continue
                if generation.error is not None:
                    raise generation.error
                number = running.pop(generation)
                speech[number] = Speech(generation.tokens, reason)
                done()
        return [speech[number] for number in range(len(jobs))]


ENGINES: dict[str, Callable[[SpeechLM, EngineOptions], Engine]] = {"torch": TorchEngine}
"""Engines by the name of ``--backend``."""


def check_backend(backend: str) -> None:
    """Raise InvalidInput if this installation has no such engine."""
    if backend not in ENGINES:
        raise InvalidInput("backend", backend, f"engines available here: {', '.join(ENGINES)}")


def make_engine(backend: str, lm: SpeechLM, options: EngineOptions) -> Engine:
    """
    Args:
        lm: the checkpoint's network, for engines that run it.

    Raises:
        InvalidInput: this installation has no such engine.
        CheckpointError: the weights are missing or damaged.
    """
    check_backend(backend)
    return ENGINES[backend](lm, options)


def _load(weights: Path, checkpoint: Path, like: SpeechLM) -> SpeechLM:
    config = load_config(checkpoint)
    if (weights / MERGED_WEIGHTS).is_file():
        tensors = read_merged(weights)
    else:
        tensors = load_tensors(Layout(weights), "llm", config)
    return SpeechLM.from_tensors(config.speech_lm, tensors, like.device, like.dtype)


def _positions(job: Job) -> int:
    """Prompt and longest possible output."""
    most = TokenLimits.of(job.options, len(job.prompt.text)).max_tokens
    return num_positions(job.prompt.parts()) + most
