"""``Executor``: one thread that decodes, as TensorRT-LLM's ``executorImpl.cpp`` does, with its overlaps.

An iteration ends requests that were cancelled, draws one token for each active one, hands the responses over
and only then takes new requests. A cancelled request still gets a last response; cancelling an ended one does
nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from datetime import timedelta
from pathlib import Path

import torch

from trtllm_fake import bindings, kernels
from trtllm_fake.bindings import FinishReason, Request, Response, Result


class Active:
    """A request that is being decoded."""

    def __init__(self, request_id: int, request: Request) -> None:
        self.id, self.request = request_id, request
        self.output: list[int] = []
        self.sent = 0
        self.reason = FinishReason.NOT_FINISHED
        self.generator = torch.Generator().manual_seed(request.sampling_config.seed or 0)


class BaseExecutor:
    """See `trtllm_fake.install` for ``fake``, which every test has its own of."""

    fake = None

    def __init__(self, model_path, model_type, executor_config):
        path = bindings.model_path(model_path)
        bindings.instance("model_type", model_type, bindings.ModelType)
        bindings.instance("executor_config", executor_config, bindings.ExecutorConfig)
        self.fake.opening()
        self.config = executor_config
        self._limits = self.fake.read_limits(path)
        self._model = self.fake.load_model(path)
        self._changed = threading.Condition()
        self._queued: deque[tuple[int, Request]] = deque()
        self._active: list[Active] = []
        self._cancelled: set[int] = set()
        self._responses: list[Response] = []
        self._statistics: list[bindings.IterationStats] = []
        self._last_id = 0
        self._shutdown = False
        self.fake.executors.append(self)
        self._thread = threading.Thread(target=self._run, name="fake-executor")
        self._thread.start()

    def enqueue_request(self, request):
        bindings.instance("request", request, Request)
        bindings.require(not self._shutdown, "Shutdown called, cannot enqueue requests")
        with self._changed:
            self._last_id += 1
            self._queued.append((self._last_id, request))
            self.fake.requests.append(request)
            self._changed.notify_all()
            return self._last_id

    def await_responses(self, timeout=None):
        bindings.optional(bindings.instance, "timeout", timeout, timedelta)
        bindings.require(not self._shutdown, "Shutdown called")
        if self.fake.breakdown is not None:
            raise self.fake.breakdown
        seconds = None if timeout is None else timeout.total_seconds()
        with self._changed:
            self._changed.wait_for(lambda: self._responses or self._shutdown, seconds)
            responses, self._responses = self._responses, []
            return responses

    def cancel_request(self, id=None):
        bindings.integer("id", id)
        bindings.require(not self._shutdown, "Shutdown called")
        with self._changed:
            self._cancelled.add(id)

    def get_latest_iteration_stats(self):
        bindings.require(not self._shutdown, "Shutdown called")
        with self._changed:
            statistics, self._statistics = self._statistics, []
            return statistics

    def shutdown(self):
        with self._changed:
            self._shutdown = True
            self._changed.notify_all()
        self.fake.gate.open()
        self._thread.join()

    @property
    def running(self) -> bool:
        """For tests: whether its thread still works."""
        return self._thread.is_alive()

    def wait_for_end(self, request_id: int) -> None:
        """For tests: return when the last response to a request waits to be read."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: any(
                    response.request_id == request_id and response.result.is_final
                    for response in self._responses
                ),
                timeout=120.0,
            )

    def _run(self) -> None:
        while self._fetch():
            self.fake.gate.wait()
            self._end_cancelled()
            self._forward()
            self._respond()

    def _fetch(self) -> bool:
        """Wait for requests unless some are active; False when there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._queued or self._active or self._shutdown)
            while self._queued and len(self._active) < self.config.max_batch_size and not self._shutdown:
                self._admit(*self._queued.popleft())
            return bool(self._active) or not self._shutdown

    def _admit(self, request_id: int, request: Request) -> None:
        problem = self._problem(request) or self.fake.refuse(request)
        if problem:
            failure = f"Encountered an error when fetching new request: {problem} (/src/llmRequest.cpp:12)"
            self._responses.append(Response(request_id, error=failure))
            self._changed.notify_all()
        else:
            self._active.append(Active(request_id, request))

    def _problem(self, request: Request) -> str:
        vocabulary, longest = self._limits["vocab_size"], self._limits["max_seq_len"]
        if request.end_id is not None and not -1 <= request.end_id < vocabulary:
            return f"EndId ({request.end_id}) is not within acceptable range [-1, {vocabulary})."
        if len(request.input_token_ids) > self._limits["max_input_len"]:
            return "Prompt length exceeds maximum input length"
        request.max_tokens = min(request.max_tokens, longest - len(request.input_token_ids))
        bias = request.embedding_bias
        if bias is not None and (bias.dtype, tuple(bias.shape)) != (torch.float32, (vocabulary,)):
            return "embedding bias has the wrong shape or dtype"
        batched = request.logits_post_processor_name == Request.BATCHED_POST_PROCESSOR_NAME
        if batched and self.config.logits_post_processor_config is None:
            return "Batched logits post processor is not defined."
        return ""

    def _end_cancelled(self) -> None:
        with self._changed:
            for row in self._active:
                if row.id in self._cancelled:
                    self._cancelled.discard(row.id)
                    row.reason = FinishReason.CANCELLED

    def _forward(self) -> None:
        rows = [row for row in self._active if row.reason is FinishReason.NOT_FINISHED]
        logits = [self._model([*row.request.input_token_ids, *row.output]).float().clone() for row in rows]
        self._post_process(rows, logits)
        for row, values in zip(rows, logits, strict=True):
            self._extend(row, kernels.draw(self._processed(values, row), row.request, row.generator))

    def _post_process(self, rows: list[Active], logits: list[torch.Tensor]) -> None:
        name = Request.BATCHED_POST_PROCESSOR_NAME
        chosen = [place for place, row in enumerate(rows) if row.request.logits_post_processor_name == name]
        if chosen:
            self.config.logits_post_processor_config.processor_batched(
                [rows[place].id for place in chosen],
                [logits[place].view(1, 1, -1) for place in chosen],
                [[[*rows[place].request.input_token_ids, *rows[place].output]] for place in chosen],
                0,
                [rows[place].request.client_id for place in chosen],
            )

    @staticmethod
    def _processed(logits: torch.Tensor, row: Active) -> torch.Tensor:
        return kernels.processed(logits, row.request, row.output)

    @staticmethod
    def _extend(row: Active, token: int) -> None:
        if token == row.request.end_id:
            row.reason = FinishReason.END_ID  # and the id is no part of the output
            return
        row.output.append(token)
        if [token] in row.request.stop_words:
            row.reason = FinishReason.STOP_WORDS
        elif len(row.output) == row.request.max_tokens:
            row.reason = FinishReason.LENGTH

    def _respond(self) -> None:
        with self._changed:
            for row in self._active:
                final = row.reason is not FinishReason.NOT_FINISHED
                result = Result(final, [row.output[row.sent :]], [row.reason])
                row.sent = len(row.output)
                if final:
                    self.fake.ended[row.id] = row.reason
                self._responses.append(Response(row.id, result))
            self._active = [row for row in self._active if row.reason is FinishReason.NOT_FINISHED]
            self._statistics.append(self.fake.statistics(len(self._active), len(self._queued)))
            self._changed.notify_all()


def read_checkpoint(engine: Path) -> Path:
    """Where the weights of a fake engine lie."""
    import json

    return Path(json.loads((engine / "rank0.engine").read_text())["checkpoint"])
