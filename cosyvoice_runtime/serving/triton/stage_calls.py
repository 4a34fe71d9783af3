"""Requests from one model to another, by the way that each model has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from cosyvoice_runtime.errors import StageError, StageLostError, StageSilentError
from cosyvoice_runtime.serving.triton.schema import ModelSchema, Tensors
from cosyvoice_runtime.serving.triton.stage_watch import StageLife, StageWatch, answer_of, find_stub

T = TypeVar("T")
READY_TIMEOUT_S = 5.0
"""For the answer whether a model is loaded."""
LOADED_INTERVAL_S = 0.1
"""Time between two looks whether a model is loaded, which takes seconds."""


class Responses(Protocol):
    """What a stream brings."""

    def __anext__(self) -> Coroutine[Any, Any, Tensors]:
        """The next response.

        Raises:
            StageError: the model refused or failed.
        """

    def cancel(self) -> None:
        """Nobody reads further."""


class Beside(NamedTuple):
    """A request that goes out right behind a stream's first one, to another model of the same process.

    Attributes:
        answered: given what comes of it, at most once, while the stream is read.
    """

    schema: ModelSchema
    inputs: Mapping[str, Any]
    answered: Callable[[Tensors | StageError], None]


class StageWay(Protocol):
    """How models are called. Made and used in one event loop.

    Attributes:
        process: the model in whose process they compute; None: each in its own.
    """

    process: str | None

    async def infer(self, schema: ModelSchema, inputs: Mapping[str, Any], timeout_s: float) -> Tensors:
        """Run a model that answers once.

        Raises:
            StageError: the model refused or failed, or can't be reached.
            TimeoutError: it did not answer in time.
        """

    def stream(
        self,
        schema: ModelSchema,
        request_id: str,
        inputs: Mapping[str, Any],
        further: AsyncIterator[Mapping[str, Any]] | None,
        beside: Beside | None = None,
    ) -> Responses:
        """Run a decoupled model, with further requests in the same stream.

        Args:
            beside: given only where both models compute in one ``process``.
        """

    async def ready(self, model: str) -> bool:
        """Whether it is loaded; that may be said of one whose process has died, too."""

    async def close(self) -> None:
        """Hang up."""


class StageCalls:
    """Calls of models, in a batch of one, with a deadline each; made and used in one event loop.

    Args:
        ways: by model.
        timeout_s: longest wait for an answer, and between two answers of a stream.
        find: process id of a model, if it runs on this machine.
    """

    def __init__(
        self,
        ways: Mapping[str, StageWay],
        timeout_s: float,
        find: Callable[[str], int | None] = find_stub,
    ) -> None:
        self._ways = ways
        self._timeout_s = timeout_s
        self.stages = StageWatch(self._ready, lambda model: find(ways[model].process or model))

    async def call(
        self, schema: ModelSchema, inputs: Mapping[str, Any], timeout_s: float | None = None
    ) -> Tensors:
        """Run a model that answers once. Cancelled by its caller, the call still comes to its end.

        Raises:
            StageLostError: the model's process ended, or has not been loaded again yet.
            StageError: the model refused or failed.
            StageSilentError: it did not answer in time.
        """
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        life = await self.stages.life(schema.name)
        # Never cancelled: Triton 2.51 may abort when a request is cancelled just as it ends.
        answer = answer_of(self._infer(schema, inputs, timeout_s))
        try:
            return await (asyncio.shield(answer) if life is None else life.outlast(answer))
        except StageLostError:
            raise
        except StageError as error:
            raise await self.stages.explain(schema.name, error) from None

    async def stream(
        self,
        schema: ModelSchema,
        inputs: Mapping[str, Any],
        request_id: str = "",
        timeout_s: float | None = None,
        further: AsyncIterator[Mapping[str, Any]] | None = None,
        beside: Beside | None = None,
    ) -> AsyncGenerator[Tensors, None]:
        """Run a decoupled model; each response as it comes. Closing it early cancels the request.

        Args:
            further: inputs of requests that follow in the same stream, under the same id. It must not raise;
                the stream ends after it has.
            beside: of models :meth:`side_by_side`.

        Raises:
            StageLostError: the model's process ended, or has not been loaded again yet.
            StageError: the model refused or failed.
            StageSilentError: nothing came in time.
        """
        life = await self.stages.life(schema.name)
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        responses = self._ways[schema.name].stream(schema, request_id, inputs, further, beside)
        ended = False
        try:
            while (response := await self._next(schema, responses, life, timeout_s)) is not None:
                yield response
            ended = True
        except StageLostError:
            raise
        except StageError as error:
            ended = True
            raise await self.stages.explain(schema.name, error) from None
        finally:
            if not ended:
                responses.cancel()

    def side_by_side(self, schema: ModelSchema, other: ModelSchema) -> bool:
        """Whether two models compute in one process, which is called past the server."""
        way = self._ways[schema.name]
        return way.process is not None and way is self._ways[other.name]

    async def within(self, schema: ModelSchema, answer: asyncio.Future[T]) -> T:
        """An answer that comes by another model's stream, which is left alone when it does not come.

        Raises:
            StageSilentError: it did not come in time.
        """
        await asyncio.wait({answer}, timeout=self._timeout_s)
        if not answer.done():
            raise self.silence(schema)
        return answer.result()

    def silence(self, schema: ModelSchema) -> StageSilentError:
        """What is said of a model that has not answered in time."""
        return _silent(schema, self._timeout_s)

    async def loaded(self, models: Sequence[str]) -> None:
        """Wait until all of these are."""
        for model in models:
            while not await self._ready(model):
                await asyncio.sleep(LOADED_INTERVAL_S)

    async def close(self) -> None:
        await self.stages.close()
        for way in set(self._ways.values()):
            await way.close()

    async def _infer(self, schema: ModelSchema, inputs: Mapping[str, Any], timeout_s: float) -> Tensors:
        try:
            return await self._ways[schema.name].infer(schema, inputs, timeout_s)
        except TimeoutError:
            raise _silent(schema, timeout_s) from None

    async def _next(
        self, schema: ModelSchema, responses: Responses, life: StageLife | None, timeout_s: float
    ) -> Tensors | None:
        """The next response of a stream; None at its end."""
        try:
            return await _within(responses.__anext__(), life, timeout_s)
        except StopAsyncIteration:
            return None
        except TimeoutError:
            raise _silent(schema, timeout_s) from None

    async def _ready(self, model: str) -> bool:
        return await self._ways[model].ready(model)


def _silent(schema: ModelSchema, timeout_s: float) -> StageSilentError:
    return StageSilentError(f"{schema.name} sent nothing for {timeout_s:g} s; try again later")


async def _within(
    response: Coroutine[Any, Any, Tensors], life: StageLife | None, timeout_s: float
) -> Tensors:
    if life is None:
        async with asyncio.timeout(timeout_s):
            return await response
    answer = answer_of(response)
    try:
        return await life.outlast(answer, timeout_s)
    finally:
        answer.cancel()
