"""Whoever hears an utterance: a client that gets every chunk, or all of them at once."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from functools import partial

import torch
from torch import Tensor

from cosyvoice_runtime.lm.limits import FinishReason
from cosyvoice_runtime.pipeline.request import AudioChunk
from cosyvoice_runtime.serving.triton.reply import Reply
from cosyvoice_runtime.serving.triton.schema import COSYVOICE2, Tensors

HAPPINESS = (FinishReason.STOP, FinishReason.LENGTH, FinishReason.REPETITION)
"""Reasons, the happiest first."""


class ChunkListener:
    """A client that gets every chunk.

    Args:
        sender: sends one response at a time, so that the event loop does not wait for the server.
    """

    def __init__(self, reply: Reply, sender: Executor) -> None:
        self._reply = reply
        self._sender = sender

    @property
    def gone(self) -> bool:
        """Whether the client has left or has cancelled."""
        return self._reply.cancelled

    async def send(self, chunk: AudioChunk) -> None:
        """
        Raises:
            ClientGoneError: the client has left.
        """
        send = partial(self._reply.send, **outputs(chunk.samples, chunk.finish_reason))
        await asyncio.get_running_loop().run_in_executor(self._sender, send)

    async def finish(self, error: BaseException | None) -> None:
        """End the answer, once, with an error if there is one."""
        await asyncio.get_running_loop().run_in_executor(self._sender, self._reply.finish, error)


class WholeListener(ChunkListener):
    """A client that gets everything at once; of several segments the least happy reason."""

    def __init__(self, reply: Reply, sender: Executor) -> None:
        super().__init__(reply, sender)
        self._chunks: list[AudioChunk] = []

    async def send(self, chunk: AudioChunk) -> None:
        self._chunks.append(chunk)

    async def finish(self, error: BaseException | None) -> None:
        if error is None:
            send = partial(self._reply.send_only, **self._whole())
            await asyncio.get_running_loop().run_in_executor(self._sender, send)
        await super().finish(error)

    def _whole(self) -> Tensors:
        reasons = [chunk.finish_reason for chunk in self._chunks if chunk.finish_reason is not None]
        samples = torch.cat([chunk.samples for chunk in self._chunks])
        return outputs(samples, max(reasons, key=HAPPINESS.index))


def outputs(samples: Tensor, finish_reason: FinishReason | None) -> Tensors:
    """A chunk as the models' outputs."""
    reason = "" if finish_reason is None else finish_reason.value
    return COSYVOICE2.encode_outputs(waveform=samples.numpy(), finish_reason=reason)
