"""Speech tokens on their way from the speech LM to the utterance that waits for them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.lm.limits import FinishReason
from cosyvoice_runtime.pipeline.stages import TokenGroup


class StageSilentError(CosyVoiceError):
    """A stage did not answer in time."""


class TokenQueue:
    """Reads groups of tokens in a thread of its own, so that they pile up while audio is made.

    The thread reads to the end even when nobody takes the tokens any more: an unread stream would stay
    with the server for ever.
    """

    def __init__(self, groups: Iterator[TokenGroup], timeout_s: float) -> None:
        self._groups = groups
        self._timeout_s = timeout_s
        self._queue: queue.SimpleQueue[TokenGroup | BaseException] = queue.SimpleQueue()
        self.finish_reason: FinishReason | None = None
        """Why the tokens ended; None while more may come."""
        self._thread = threading.Thread(target=self._read, name="speech tokens", daemon=True)
        self._thread.start()

    def take(self) -> list[int]:
        """Wait for the next tokens; also those that came with them. Empty only at the end.

        Raises:
            StageSilentError: nothing came in time.
            Exception: what the speech LM raised.
        """
        tokens = self._accept(self._wait())
        while self.finish_reason is None and not self._queue.empty():
            tokens += self._accept(self._queue.get())
        return tokens

    def _wait(self) -> TokenGroup | BaseException:
        try:
            return self._queue.get(timeout=self._timeout_s)
        except queue.Empty:
            raise StageSilentError(f"the speech LM sent nothing for {self._timeout_s:g} s") from None

    def _accept(self, group: TokenGroup | BaseException) -> list[int]:
        if isinstance(group, BaseException):
            raise group
        self.finish_reason = group.finish_reason
        return list(group.tokens)

    def _read(self) -> None:
        try:
            for group in self._groups:
                self._queue.put(group)
        except BaseException as error:
            self._queue.put(error)
        else:
            self._queue.put(TokenGroup((), FinishReason.ERROR))
