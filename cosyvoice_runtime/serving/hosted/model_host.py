"""The host that serves a process's models on a Unix socket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cosyvoice_runtime.engine.frames import Frame, FrameError, FrameReader, read_tensors, write_frame
from cosyvoice_runtime.engine.messages import ORDER
from cosyvoice_runtime.errors import InvalidInput, NotFoundError, status_of
from cosyvoice_runtime.process.event_loop import EventLoopThread, LoopCalls
from cosyvoice_runtime.serving.hosted.hosted_request import Answers, HostedRequest, ModelAnswer

if TYPE_CHECKING:
    from cosyvoice_runtime.engine.speech_engine import SpeechEngine, SpokenUtterance

logger = logging.getLogger(__name__)

MOST_WAITING_CALLERS = 1024
"""The most connections that wait to be accepted; further callers must retry."""
MOST_UNREAD = 256 << 20
"""The most unread bytes of answers; a caller that leaves more is disconnected."""
MOST_MESSAGE = 1 << 16
END_S = 1.0
"""The time for calls in progress when the host ends; models have answered their requests before."""


class HostedModel(Protocol):
    """A model as Triton calls it."""

    def execute(self, requests: list[Any]) -> object:
        """Begin each request; answers may come from other threads. This raises nothing."""


class ModelHost:
    """Serves models until it is closed.

    The socket is in a folder that only the server's own user may enter, so it asks for no key.

    Args:
        socket: path of the socket; a stale file there is removed.
        models: models by name.
        engine: speaks utterances, in the process that has it.
        loop: event loop of the socket, which its owner closes; None makes one.
    """

    def __init__(
        self,
        socket: Path,
        models: Mapping[str, HostedModel],
        engine: SpeechEngine | None = None,
        loop: EventLoopThread | None = None,
    ) -> None:
        socket.unlink(missing_ok=True)
        self._models = models
        self._engine = engine
        self._callers: set[Caller] = set()
        self._loop, self._owns_loop = loop or EventLoopThread("networks"), loop is None
        self._server = self._loop.run(self._serve(socket))
        logger.info("%s answer at %s", " and ".join(models), socket)

    def close(self) -> None:
        self._loop.run(self._stop())
        if self._owns_loop:
            self._loop.close()

    async def _serve(self, socket: Path) -> asyncio.Server:
        calls = LoopCalls()
        return await asyncio.get_running_loop().create_unix_server(
            lambda: Caller(self._models, calls, self._callers, self._engine),
            str(socket),
            backlog=MOST_WAITING_CALLERS,
        )

    async def _stop(self) -> None:
        self._server.close()
        callers = [*self._callers]
        for caller in callers:
            caller.finish()
        if callers:
            await asyncio.wait([caller.left for caller in callers], timeout=END_S)
        for caller in callers:
            caller.hang_up()


class Caller(asyncio.Protocol):
    """A connection that carries one call after another; made in the loop that serves it.

    A call is an utterance (`engine.messages`), or a request to a ``model`` with an ``id`` and ``tensors``.
    An answer names its ``model`` and has its tensors, or the ``status`` and ``message`` of an error; the last
    one says ``last``. If a request says ``tell``, an empty frame comes as soon as the model has it. A caller
    that hangs up has cancelled the call.

    Args:
        connected: set in which the caller is kept until it has left.

    Attributes:
        left: a future that is done when the caller has left.
    """

    def __init__(
        self,
        models: Mapping[str, HostedModel],
        calls: LoopCalls,
        connected: set[Caller],
        engine: SpeechEngine | None = None,
    ) -> None:
        self.left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._models = models
        self._calls = calls
        self._connected = connected
        self._engine = engine
        self._reader = FrameReader()
        self._answers: Answers | None = None
        self._spoken: SpokenUtterance | None = None
        self._finishing = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._connected.add(self)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._take(frame)
        except FrameError as error:
            logger.warning("a caller is sent away: %s", error)
            self._send({**_error("INVALID_ARGUMENT", str(error)), "last": True})
            self._transport.close()

    def connection_lost(self, _error: Exception | None) -> None:
        if self._answers is not None:
            self._answers.gone = True
        if self._spoken is not None:
            self._spoken.leave()
        self._connected.discard(self)
        self.left.set_result(None)

    def finish(self) -> None:
        """Disconnect after the call in progress."""
        self._finishing = True
        if self._answers is None and self._spoken is None:
            self._transport.close()

    def hang_up(self) -> None:
        """Disconnect at once."""
        self._transport.abort()

    def _take(self, frame: Frame) -> None:
        if self._spoken is not None or (self._engine and ORDER in frame.header):
            self._speak(frame)
        elif self._answers is not None:
            raise FrameError("a frame after a request that has not been answered yet")
        else:
            self._begin(frame, Answers(self._calls, self._answer))

    def _speak(self, frame: Frame) -> None:
        try:
            if self._spoken is not None:
                self._spoken.take(frame)
            elif self._engine is not None:
                self._spoken = self._engine.begin(frame, self._calls, self._write)
        except Exception as error:
            logger.warning("a call makes no sense", exc_info=error)
            if self._spoken is not None:
                self._spoken.leave()
            self._write(write_frame({**_error(status_of(error), str(error)), "last": True}), True)

    def _begin(self, frame: Frame, answers: Answers) -> None:
        self._answers = answers
        asked: Any = frame.header.get("model")
        try:
            model = self._model(asked)
            name, parameters = (_header_text(frame, key) for key in ("id", "parameters"))
            request = HostedRequest(asked, name, read_tensors(frame), answers, parameters)
        except Exception as error:
            answers.take(ModelAnswer(str(asked), {}, status_of(error), str(error)), last=True)
            return
        model.execute([request])
        if frame.header.get("tell"):
            self._send({})

    def _model(self, name: Any) -> HostedModel:
        model = self._models.get(name) if isinstance(name, str) else None
        if model is None:
            raise NotFoundError("model", name, f"{', '.join(self._models)} answer here")
        return model

    def _answer(self, answer: ModelAnswer | None, last: bool) -> None:
        if last:
            self._answers = None
        self._write(_answer_frame({"last": True} if last else {}, answer), last)

    def _send(self, header: dict[str, Any]) -> None:
        self._write(write_frame(header), False)

    def _write(self, frame: bytes, last: bool) -> None:
        if last:
            self._spoken = None
        if self._transport.get_write_buffer_size() > MOST_UNREAD:
            logger.warning(
                "a caller reads no answers: %d bytes wait", self._transport.get_write_buffer_size()
            )
            self._transport.abort()
        elif not self._transport.is_closing():
            self._transport.write(frame)
        if last and self._finishing:
            self._transport.close()


def _header_text(frame: Frame, key: str) -> str:
    value = frame.header.get(key, "")
    if not isinstance(value, str):
        raise InvalidInput(key, value, "a text is expected")
    return value


def _answer_frame(header: dict[str, Any], answer: ModelAnswer | None) -> bytes:
    if answer is None:
        return write_frame(header)
    header = {"model": answer.model, **header}
    if answer.status:
        return write_frame({**header, **_error(answer.status, answer.message)})
    try:
        return write_frame(header, answer.outputs)
    except Exception as error:  # Every error ends the call with a message to the caller.
        logger.exception("an answer could not be sent")
        return write_frame({**header, **_error("INTERNAL", str(error))})


def _error(status: str, message: str) -> dict[str, str]:
    """The header of an error; errors of streams begin with their status, because Triton keeps none there."""
    return {"status": status, "message": message.removeprefix(f"{status}: ")[:MOST_MESSAGE]}
