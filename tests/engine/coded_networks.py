"""A speech LM that says given tokens, and a token2wav whose samples are the tokens."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from cosyvoice_runtime.errors import NotFoundError
from cosyvoice_runtime.lm import FinishReason, Prompt, SamplingOptions

TOKEN_SAMPLES = 960
SPEECH = tuple(range(60))


class Lm:
    """Says the given tokens, group by group, from a thread of its own, or those of a text in pieces.

    Attributes:
        said: tokens of an utterance.
        refusal: raised in place of an answer.
        failure: told in the place of the end.
        holds: it says no more than the first group until it is stopped.
        prompts: of all requests, with their sampling.
        stopped: ids of requests that were to end early.
    """

    silent_tokens: frozenset[int] = frozenset()
    takes_spoken = True

    def __init__(self) -> None:
        self.said: Sequence[int] = SPEECH
        self.refusal: Exception | None = None
        self.failure: Exception | None = None
        self.holds = False
        self.prompts: list[tuple[Prompt, SamplingOptions]] = []
        self.awaited: list[bool] = []
        self.followed: list[bool] = []
        self.stopped: list[str] = []
        self.texts: list[int] = []
        self.readers: dict[str, Any] = {}

    def speak(self, prompt, sampling, request_id, groups, reader, in_pieces, is_awaited, with_rows):
        if self.refusal is not None:
            raise self.refusal
        self.prompts.append((prompt, sampling))
        self.awaited.append(is_awaited)
        self.followed.append(with_rows)
        self.readers[request_id] = reader
        if not in_pieces:
            said = self.said[len(prompt.spoken) :]
            threading.Thread(target=self._say, args=(reader, said, groups, with_rows)).start()

    def _say(self, reader, said, groups, with_rows) -> None:
        """Each row is the number of its token."""
        rows = np.arange(len(said), dtype=np.float32)[:, None] if with_rows else None
        first, later = groups
        for start, end in pairwise([0, *range(first, len(said), later), len(said)]):
            reader.send(list(said[start:end]), None, None if rows is None else rows[start:end])
            if self.holds:
                return
        self._end(reader)

    def _end(self, reader) -> None:
        if self.failure is None:
            reader.send([], FinishReason.STOP)
        reader.finish(self.failure)

    def push_text(self, request_id: str, ids: Sequence[int], ended: bool) -> None:
        self.texts += ids
        self.readers[request_id].send([*ids], None)
        if ended:
            self._end(self.readers[request_id])

    def stop(self, request_id: str) -> None:
        self.stopped.append(request_id)

    def with_remedy(self, error: Exception) -> Exception:
        return error


class Waves:
    """Writes each token as samples, from a thread of its own; has to be told a voice once.

    Attributes:
        error: the outcome of every chunk.
        holds: it answers nothing.
        later_s: time that a chunk takes, but the first one.
        forgotten: utterances that were to be forgotten.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.holds = False
        self.later_s = 0.0
        self.forgotten: list[str] = []
        self.chunks: list[Any] = []
        self.voices: dict[str, Any] = {}

    def submit(self, chunk, deliver) -> None:
        if chunk.cancel:
            self.forgotten.append(chunk.utterance_id)
            return
        chunk.check()
        self.chunks.append(chunk)
        if not self.holds:
            later_s = self.later_s if chunk.position else 0.0
            threading.Timer(later_s, deliver, (self._outcome(chunk),)).start()

    def _outcome(self, chunk):
        if self.error is not None:
            return self.error
        if chunk.prompt is not None:
            assert chunk.prompt.key == chunk.voice_key
            self.voices[chunk.voice_key] = chunk.prompt
        if chunk.position == 0 and chunk.voice_key not in self.voices:
            return NotFoundError("voice_key", chunk.voice_key, "send it")
        return np.repeat(np.array(chunk.tokens, np.float32), TOKEN_SAMPLES)

    def with_remedy(self, error: Exception) -> Exception:
        return error
