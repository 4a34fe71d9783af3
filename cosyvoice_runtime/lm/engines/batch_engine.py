"""A running batch of this library as the scheduler's engine."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import cast

from cosyvoice_runtime.lm import Generation, Prompt, RunningBatch, SamplingOptions
from cosyvoice_runtime.lm.engines.engine import Progress


class BatchEngine:
    """`RunningBatch` as a `TextEngine`; its `Generation` objects are the handles.

    Args:
        prefill_batch: see `LmEngine`.
    """

    def __init__(self, batch: RunningBatch, prefill_batch: int) -> None:
        self.slots = batch.free_slots
        self.prefill_batch = prefill_batch
        self._batch = batch

    def add(self, prompt: Prompt, options: SamplingOptions) -> Generation:
        return self._batch.add(prompt, options)

    def add_open(self, prompt: Prompt, options: SamplingOptions) -> Generation:
        return self._batch.add_stream(
            options, prompt.prompt_text, prompt.prompt_speech, lead_text=prompt.lead_text
        )

    def push_text(self, handle: Hashable, ids: Sequence[int]) -> None:
        self._batch.push_text(cast(Generation, handle), ids)

    def end_text(self, handle: Hashable) -> None:
        self._batch.end_text(cast(Generation, handle))

    def waits_for_text(self, handle: Hashable) -> bool:
        return cast(Generation, handle).waiting

    def step(self) -> list[Progress]:
        return [
            Progress(generation, [] if token is None else [token], reason, generation.error)
            for generation, token, reason in self._batch.step()
        ]

    def cancel(self, handle: Hashable) -> None:
        self._batch.cancel(cast(Generation, handle))

    def close(self) -> None:
        del self._batch
