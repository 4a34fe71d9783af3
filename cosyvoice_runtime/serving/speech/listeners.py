"""The receivers of an utterance: chunk by chunk, or as a whole."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from cosyvoice_runtime.engine.utterance.request import AudioChunk
from cosyvoice_runtime.lm.generation import FinishReason
from cosyvoice_runtime.serving.triton.request import Reply
from cosyvoice_runtime.serving.triton.schema import COSYVOICE2, Tensors

REASONS_BEST_FIRST = (FinishReason.STOP, FinishReason.LENGTH, FinishReason.REPETITION)
"""The reasons for the end of a segment, best first."""


class ChunkListener:
    """A client that receives every chunk.

    Args:
        token_rate: speech tokens per second, which every answer contains.
        call: id of the gateway's call, if known.

    Attributes:
        streams: whether the client plays while it receives.
    """

    streams: ClassVar[bool] = True

    def __init__(self, reply: Reply, token_rate: int, call: str | None = None) -> None:
        self.call = call
        self._reply = reply
        self._token_rate = token_rate
        self._heard = False

    @property
    def gone(self) -> bool:
        """Whether the client has left or has cancelled."""
        return self._reply.cancelled

    def send(self, chunk: AudioChunk) -> None:
        """Send a chunk.

        Raises:
            ClientGoneError: the client has left.
        """
        self._heard = True
        self._reply.send(**self._outputs(chunk))

    def begin_again(self) -> bool:
        """Whether the client has received nothing yet, so that the utterance can be restarted."""
        return not self._heard

    def complete(self) -> None:
        """Send what is left at the end of the utterance.

        Raises:
            ClientGoneError: the client has left.
        """

    def acknowledge(self) -> None:
        """Answer a request that only carried a message."""
        empty = self._outputs(AudioChunk(np.empty(0, np.float32), 0, 0))
        self._reply.send_only(**empty)

    def finish(self, error: BaseException | None) -> None:
        """End the answer, once, with an error if there is one."""
        self._reply.finish(error)

    def _outputs(self, chunk: AudioChunk) -> Tensors:
        return outputs(chunk, self._token_rate)


class WholeListener(ChunkListener):
    """A client that receives everything at once; several segments report the worst reason."""

    streams = False

    def __init__(self, reply: Reply, token_rate: int, call: str | None = None) -> None:
        super().__init__(reply, token_rate, call)
        self._chunks: list[AudioChunk] = []

    def send(self, chunk: AudioChunk) -> None:
        self._chunks.append(chunk)

    def begin_again(self) -> bool:
        self._chunks.clear()
        return True

    def complete(self) -> None:
        self._reply.send_only(**self._whole())

    def _whole(self) -> Tensors:
        reasons = [chunk.finish_reason for chunk in self._chunks if chunk.finish_reason is not None]
        samples = np.concatenate([chunk.samples for chunk in self._chunks])
        reason = max(reasons, key=REASONS_BEST_FIRST.index)
        return self._outputs(dataclasses.replace(self._chunks[-1], samples=samples, finish_reason=reason))


def outputs(chunk: AudioChunk, token_rate: int) -> Tensors:
    """A chunk as the models' output tensors."""
    return COSYVOICE2.encode_outputs(
        waveform=chunk.samples,
        finish_reason="" if chunk.finish_reason is None else chunk.finish_reason.value,
        spoken_characters=-1 if chunk.spoken_characters is None else chunk.spoken_characters,
        sample_rate=chunk.sample_rate,
        token_rate=token_rate,
    )
