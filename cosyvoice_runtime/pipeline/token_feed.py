"""Speech tokens on their way from the speech LM to the utterance that waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.lm.limits import FinishReason
from cosyvoice_runtime.pipeline.stages import TokenGroup


class TokenFeed:
    """Reads groups of tokens in a task of its own, so that they pile up while audio is made.

    Used in ``async with``; leaving it before the end of the tokens stops the speech LM.

    Attributes:
        tokens: all that have come so far.
        finish_reason: why the tokens ended; None while more may come.
    """

    def __init__(self, groups: AsyncGenerator[TokenGroup, None]) -> None:
        self.tokens: list[int] = []
        self.finish_reason: FinishReason | None = None
        self._groups = groups
        self._news = asyncio.Event()
        self._error: Exception | None = None

    async def more(self) -> None:
        """Wait for further tokens or for their end.

        Raises:
            CosyVoiceError: the speech LM ended without a reason, or stopped because somebody told it to.
            Exception: what the speech LM raised.
        """
        await self._news.wait()
        self._news.clear()
        if self._error is not None:
            raise self._error

    async def __aenter__(self) -> TokenFeed:
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _read(self) -> None:
        try:
            async with aclosing(self._groups) as groups:
                async for group in groups:
                    self.tokens += group.tokens
                    self._news.set()
                    if group.finish_reason is not None:
                        self._finish(group.finish_reason)
            if self.finish_reason is None:
                self._error = CosyVoiceError("the speech LM's answer ended without a reason")
        except Exception as error:
            self._error = error
        finally:
            self._news.set()

    def _finish(self, reason: FinishReason) -> None:
        if reason is FinishReason.CANCELLED:  # the listener's own leaving never arrives here
            raise CosyVoiceError("the speech LM was told to stop before the end of the utterance")
        if reason is FinishReason.ERROR:
            raise CosyVoiceError("the speech LM failed without a reason")
        self.finish_reason = reason
