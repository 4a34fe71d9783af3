"""``LLMEngine`` without a network: schedules, samples and answers as both releases do in one process.

A step takes in waiting requests whose prompts fit whole, tells the logits processors how the batch has
changed, samples greedily and returns an output for each request that got on. Requests keep their places in
the batch; places that fall vacant are filled by new requests, then from the end.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from vllm_fake.parameters import SamplingParams
from vllm_fake.processors import BatchUpdate, LogitsProcessor, MoveDirectionality


@dataclass
class CompletionOutput:
    index: int
    text: str
    token_ids: Sequence[int]
    cumulative_logprob: float | None
    logprobs: Any
    routed_experts: Any = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    lora_request: Any = None


@dataclass
class Active:
    """A request in the engine."""

    id: str
    embeds: torch.Tensor
    params: SamplingParams
    output: list[int] = field(default_factory=list)


class Executor:
    @staticmethod
    def get_class(vllm_config):
        return Executor


class BaseEngine:
    """See `vllm_fake.install` for ``fake``, which every test has its own of."""

    fake: Any = None

    def __init__(
        self,
        vllm_config,
        executor_class,
        log_stats,
        aggregate_engine_logging=False,
        usage_context=None,
        stat_loggers=None,
        mm_registry=None,
        multiprocess_mode=False,
    ):
        assert executor_class is Executor
        assert not log_stats
        assert not multiprocess_mode
        self.fake.opening()
        self.args = vllm_config.args
        self.config = vllm_config.model_config.hf_config
        self._model = self.fake.load_model(self.args["model"])
        self._processors = [_load(name)(vllm_config, torch.device("cpu"), False) for name in self._names]
        self._waiting: list[Active] = []
        self._batch: list[Active | None] = []
        self._vacated: list[int] = []
        self._busy = threading.Lock()
        self.alive = True
        manager = SimpleNamespace(usage=0.0)
        core = SimpleNamespace(scheduler=SimpleNamespace(kv_cache_manager=manager))
        self.engine_core = SimpleNamespace(engine_core=core, shutdown=self._shutdown)
        self.fake.engines.append(self)

    @property
    def _names(self) -> list[str]:
        return self.args.get("logits_processors") or []

    @property
    def ids(self) -> set[str]:
        """For tests: requests in the engine."""
        return {row.id for row in [*self._waiting, *self._batch] if row is not None}

    def add_request(
        self,
        request_id,
        prompt,
        params,
        arrival_time=None,
        lora_request=None,
        tokenization_kwargs=None,
        trace_headers=None,
        priority=0,
        prompt_text=None,
    ):
        with self._one_thread():
            if not isinstance(request_id, str):
                raise TypeError(f"request_id must be a string, got {type(request_id)}")
            if request_id in self.ids:
                raise ValueError(f"Request id {request_id} already running.")
            assert isinstance(params, SamplingParams)
            for name in self._names:
                _load(name).validate_params(params)
            self._waiting.append(Active(request_id, self._checked(prompt), params))
            self.fake.requests.append(self._waiting[-1])
            return request_id

    def abort_request(self, request_ids, internal=False):
        with self._one_thread():
            assert isinstance(request_ids, list)
            for request_id in request_ids:
                self._remove(request_id)
                self.fake.aborted.append(request_id)

    def step(self):
        with self._one_thread():
            self.fake.steps.acquire()
            if self.fake.breakdown is not None:
                raise self.fake.breakdown
            self._change_batch()
            rows = [row for row in self._batch if row is not None]
            if not rows:
                return []
            outputs = [
                output
                for row, id_ in zip(rows, self._sample(rows), strict=True)
                if (output := self._take(row, id_)) is not None
            ]
            self._show_usage()
            return outputs

    def _checked(self, prompt) -> torch.Tensor:
        if prompt["type"] != "embeds" or not self.args.get("enable_prompt_embeds"):
            raise ValueError("You must set `--enable-prompt-embeds` to input `prompt_embeds`.")
        embeds = prompt["prompt_embeds"]
        assert embeds.shape[1:] == (self.config.hidden_size,)
        assert embeds.dtype == getattr(torch, self.args["dtype"])
        if len(embeds) >= self.args["max_model_len"]:
            raise ValueError(
                f"The decoder prompt (length {len(embeds)}) is longer than the maximum model length"
            )
        return embeds

    def _change_batch(self) -> None:
        removed, self._vacated = sorted(self._vacated), []
        added, moved = [], []
        while self._waiting and self._fits(self._waiting[0]):
            row = self._waiting.pop(0)
            place = removed.pop(0) if removed else len(self._batch)
            self._batch[place : place + 1] = [row]
            added.append((place, row.params, None, row.output))
        for place in removed:
            while self._batch and self._batch[-1] is None:
                self._batch.pop()
            if place < len(self._batch):
                moved.append((len(self._batch) - 1, place, MoveDirectionality.UNIDIRECTIONAL))
                self._batch[place] = self._batch.pop()
        if added and len(self._batch) > 1:  # prefills and decodes change places
            last = len(self._batch) - 1
            self._batch[0], self._batch[last] = self._batch[last], self._batch[0]
            moved.append((0, last, MoveDirectionality.SWAP))
        changed = removed or added or moved
        update = BatchUpdate(len(self._batch), removed, added, moved) if changed else None
        for processor in self._processors:
            processor.update_state(update)

    def _fits(self, row: Active) -> bool:
        rows = [one for one in self._batch if one is not None]
        computed = sum(1 if one.output else len(one.embeds) for one in rows) + len(row.embeds)
        return len(rows) < self.args["max_num_seqs"] and computed <= self.args["max_num_batched_tokens"]

    def _sample(self, rows: list[Active]) -> list[int]:
        with torch.inference_mode():
            logits = torch.stack([self._model(row.embeds, row.output).float() for row in rows])
            for processor in self._processors:
                assert not processor.is_argmax_invariant()
                logits = processor.apply(logits)
                assert logits.shape == (len(rows), self.config.vocab_size)
        assert all(row.params.temperature == 0 for row in rows)
        return logits.argmax(dim=1).tolist()

    def _take(self, row: Active, id_: int) -> Any:
        reason = self.fake.early_ends.pop(row.id, None)
        new = [] if reason else [id_]
        row.output += new
        if reason is None and id_ in row.params.stop_token_ids and len(row.output) > row.params.min_tokens:
            reason = "stop"
        elif reason is None and self._is_full(row):
            reason = "length"
        if reason is not None:
            self._remove(row.id)
        completion = CompletionOutput(0, "", new, None, None, finish_reason=reason)
        return SimpleNamespace(request_id=row.id, outputs=[completion], finished=reason is not None)

    def _is_full(self, row: Active) -> bool:
        length = len(row.embeds) + len(row.output)
        return len(row.output) >= row.params.max_tokens or length >= self.args["max_model_len"]

    def _remove(self, request_id: str) -> None:
        """Ids that are unknown, or have ended, are left alone."""
        self._waiting = [row for row in self._waiting if row.id != request_id]
        for place, row in enumerate(self._batch):
            if row is not None and row.id == request_id:
                self._batch[place] = None
                self._vacated.append(place)

    def _show_usage(self) -> None:
        size = self.args["block_size"]
        rows = [row for row in self._batch if row is not None]
        blocks = sum(-(-(len(row.embeds) + len(row.output)) // size) for row in rows)
        self.engine_core.engine_core.scheduler.kv_cache_manager.usage = blocks / 1000

    def _shutdown(self, timeout=None) -> None:
        self.alive = False

    @contextmanager
    def _one_thread(self) -> Iterator[None]:
        """It has no locks: two threads in it would be an error of the caller's."""
        assert self.alive, "the engine was shut down"
        assert self._busy.acquire(blocking=False), "two threads are in the engine"
        try:
            yield
        finally:
            self._busy.release()


def _load(qualified_name: str) -> type[LogitsProcessor]:
    module, _, name = qualified_name.partition(":")
    kind = getattr(importlib.import_module(module), name)
    assert issubclass(kind, LogitsProcessor)
    return kind
