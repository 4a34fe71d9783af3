"""Questions to Redis, of which many go together."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from redis.asyncio import Redis

MOST_AT_ONCE = 256
"""Questions that go together, so that Redis answers others between them."""

Answer = list[bytes]


class Question(NamedTuple):
    """
    Attributes:
        keys, arguments: of the script.
        answer: cancelled where nobody waits for it any more.
    """

    keys: list[str]
    arguments: list[str | float]
    answer: asyncio.Future[Answer]


class Questions:
    """Calls of one script, in the order in which they are asked.

    What is asked while an answer is awaited goes together as soon as that has come, because one message to
    Redis costs much more time here than one question in it.
    """

    def __init__(self, client: Redis, script: str) -> None:
        self._client = client
        self._script = script
        self._waiting: list[Question] = []
        self._asking: asyncio.Task[None] | None = None

    async def ask(self, keys: list[str], *arguments: str | float) -> Answer:
        """The script's answer; errors of redis-py tell that there is none."""
        question = Question(keys, list(arguments), asyncio.get_running_loop().create_future())
        self._waiting.append(question)
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_all())
        return await question.answer

    async def close(self) -> None:
        """End the connection; what is asked is not answered any more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        await self._client.aclose()

    async def _ask_all(self) -> None:
        while self._waiting:
            first, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
            asked = [question for question in first if not question.answer.done()]
            for question, answer in zip(asked, await self._answers(asked), strict=True):
                if question.answer.done():
                    continue
                if isinstance(answer, Exception):
                    question.answer.set_exception(answer)
                else:
                    question.answer.set_result(answer)

    async def _answers(self, asked: list[Question]) -> list[Answer | Exception]:
        try:
            async with self._client.pipeline(transaction=False) as pipeline:
                for keys, arguments, _ in asked:
                    pipeline.eval(self._script, len(keys), *keys, *arguments)
                return await pipeline.execute(raise_on_error=False)
        except Exception as error:
            return [error] * len(asked)
