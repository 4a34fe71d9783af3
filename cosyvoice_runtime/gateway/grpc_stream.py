"""The two sides of a gRPC stream: the client's call, and the stream to tritonserver."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary, ref

import grpc
import numpy as np
from tritonclient.grpc import service_pb2
from tritonclient.utils import serialize_byte_tensor

from cosyvoice_runtime.errors import STATUSES, ClientGoneError, split_status, with_status
from cosyvoice_runtime.gateway.audit import FINAL, CallAudit
from cosyvoice_runtime.gateway.limits import PendingBytes, SlowReaderTimeout
from cosyvoice_runtime.gateway.policy import FOR_NOW, RefusedError
from cosyvoice_runtime.gateway.wire_fields import check_fields
from cosyvoice_runtime.gateway.wording import reworded_in_stream

logger = logging.getLogger(__name__)

_PARENTS: WeakKeyDictionary[asyncio.Task[Any], ref[asyncio.Task[Any]]] = WeakKeyDictionary()
"""The task in which each task was started."""


def note_parents(loop: asyncio.AbstractEventLoop) -> None:
    """Record the parents of all tasks that a loop starts from now on."""

    def start(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=loop, **options)
        if parent := asyncio.current_task(loop):
            _PARENTS[task] = ref(parent)
        return task

    loop.set_task_factory(start)


class ClientCall:
    """Reads from and writes to one client; made in the task that answers the call.

    A client that takes nothing can't be told so: a status would come after what it has not read. gRPC can
    reset such a call, which frees all that it holds, but a server in asyncio has no method for it: it resets
    a call that it drops. Two tasks hold the call: the one that answers, and its parent, which waits for the
    client to leave. When both are cancelled, the call is reset. (The server keeps its first and its latest
    call all the same, the latest until the next one comes.)

    Args:
        context: the context of the call, from gRPC.
        stalled_timeout_s: longest time in which the client may read nothing.
    """

    def __init__(self, context: Any, stalled_timeout_s: float) -> None:
        self._context = context
        # The callback must not hold the context: the reference cycle would wait for the garbage collector.
        answering = cast("asyncio.Task[None]", asyncio.current_task())
        self._timeout = SlowReaderTimeout(stalled_timeout_s, context.peer(), partial(_reset, answering))
        self._writing = asyncio.Lock()

    async def read(self, within_s: float | None = None) -> bytes | None:
        """The client's next message, None after its last one; refused if it does not come within the time."""
        try:
            async with asyncio.timeout(within_s):
                message = await self._context.read()
        except TimeoutError:
            text = f"message: none came within {within_s:g} s, the limit"
            raise RefusedError("DEADLINE_EXCEEDED", text) from None
        return None if message is grpc.aio.EOF else bytes(message)

    async def write(self, message: bytes) -> None:
        """Send a message, and return when the client has taken it; a stalled client cancels this task.

        Raises:
            ClientGoneError: the client has left.
        """
        async with self._writing:
            with self._timeout.during(len(message)):
                try:
                    await self._context.write(message)
                except grpc.aio.InternalError as error:
                    raise ClientGoneError from error


def _reset(task: asyncio.Task[Any]) -> None:
    noted = _PARENTS.get(task)
    if noted is not None and (parent := noted()) is not None:
        parent.cancel()
    task.cancel()


class Admitted(NamedTuple):
    """An admitted request: its pending bytes, the models that it calls, and whether an utterance begins."""

    size: int
    models: frozenset[str]
    begins: bool = True


class ServerStream:
    """One gRPC stream to the server. gRPC cancels a call whose reader or writer is cancelled, so separate
    tasks read and write.

    It knows nothing of the client, who may be gone long before it is over.

    Args:
        call: the gRPC call to the server.
        pending: counts requests until the server has begun to answer.

    Attributes:
        models: models that were called.
        begun: utterances that its requests began.
    """

    def __init__(self, call: Any, pending: PendingBytes) -> None:
        self._call = call
        # After a failed write a call's ``read`` drops the messages that have come, and the true status.
        self._responses = aiter(call)
        self._pending = pending
        self._taken = 0
        self._reading: asyncio.Future[Any] | None = None
        self._sending: asyncio.Future[None] | None = None
        self.models: frozenset[str] = frozenset()
        self.begun = 0

    async def send(self, message: bytes, admitted: Admitted) -> None:
        self._taken += admitted.size
        self.begun += admitted.begins
        self.models |= admitted.models
        await self._send(self._call.write(message))

    async def end_requests(self) -> None:
        await self._send(self._call.done_writing())

    async def read(self) -> bytes | None:
        """The server's next response; None at the end, and an AioRpcError if that has a status."""
        self._reading = asyncio.ensure_future(anext(self._responses, None))
        response = await asyncio.shield(self._reading)
        self._reading = None
        if response is None:
            return None
        self._give_back()
        return bytes(response)

    def settle(self) -> bool:
        """Whether the stream has ended; then its pending bytes are returned."""
        over = bool(self._call.done())
        if over:
            self._give_back()
        return over

    async def drain(self) -> None:
        """Read the stream to its end and discard it."""
        try:
            if self._sending is not None:
                await asyncio.wait([self._sending])
            await self._call.done_writing()
            while await (self._reading or anext(self._responses, None)) is not None:
                self._reading = None
        finally:
            self._give_back()

    async def _send(self, sending: Coroutine[Any, Any, None]) -> None:
        self._sending = asyncio.ensure_future(sending)
        await asyncio.shield(self._sending)

    def _give_back(self) -> None:
        """Return the pending bytes: a server that answers has copied the requests."""
        self._pending.give_back(self._taken)
        self._taken = 0


SMALL_BYTES = 65_536
"""A message up to this size can't hold many fields; only inference requests are larger."""


Request = tuple[bytes, Admitted]
"""An admitted request: its message, and what it counts for."""
Admit = Callable[[bytes], Admitted]
"""The check of a message; it raises RefusedError."""


async def first_request(client: ClientCall, admit: Admit, within_s: float) -> Request | None:
    """The first admitted request, as :func:`next_request` finds it; but if the very first one can't be served
    for now, the whole call is refused, so that gRPC and proxies see the status and ask elsewhere.

    Raises:
        ClientGoneError: the client has left.
        RefusedError: no message came within the time, or the first one can't be served for now.
    """
    message = await client.read(within_s)
    if message is None:
        return None
    try:
        return message, admit(message)
    except RefusedError as refusal:
        if refusal.status == FOR_NOW:
            raise
        await client.write(_error(refusal, message))
    return await next_request(client, admit, within_s)


async def next_request(client: ClientCall, admit: Admit, within_s: float | None = None) -> Request | None:
    """The next admitted request; None after the client's last message. A refusal is answered in its place.

    Raises:
        ClientGoneError: the client has left.
        RefusedError: no message came within the time.
    """
    while (message := await client.read(within_s)) is not None:
        try:
            return message, admit(message)
        except RefusedError as refusal:
            await client.write(_error(refusal, message))
    return None


class Requests:
    """The admitted requests of a call. The client is asked for each once, and servers may be sent them again.

    Args:
        first: the first request.
        read: reads the next request; None after the last one.
        again: whether requests are kept for another server, until the first answer is there.
    """

    def __init__(self, first: Request, read: Callable[[], Awaitable[Request | None]], again: bool) -> None:
        self._read = read
        self._again = again
        self._waiting: deque[Request | None] = deque([first])
        self._sent: list[Request | None] = []
        self._reading: asyncio.Future[Request | None] | None = None

    async def next(self) -> Request | None:
        request = self._waiting.popleft() if self._waiting else await self._read_on()
        if self._again:
            self._sent.append(request)
        return request

    def restart(self) -> bool:
        """Begin anew with the first request, for another server; False if the client has had an answer."""
        # The bytes of sent requests were given back at the end of the first server's stream.
        sent = [each and (each[0], each[1]._replace(size=0)) for each in self._sent]
        self._waiting.extendleft(reversed(sent))
        self._sent.clear()
        return self._again

    def forget(self) -> None:
        """Keep nothing for another server, because there is an answer."""
        self._again = False
        self._sent.clear()

    async def close(self) -> None:
        """Read no further request."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read_on(self) -> Request | None:
        """The client's next request; who waits for it may be cancelled, and the next one gets it."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read())
        request = await asyncio.shield(self._reading)
        self._reading = None
        return request


async def exchange(client: ClientCall, requests: Requests, server: ServerStream, audit: CallAudit) -> None:
    """Forward messages in both directions, from the first request until the server ends the stream.

    Raises:
        ClientGoneError: the client has left.
        grpc.aio.AioRpcError: the server has ended the stream with a status.
        RefusedError: its first answer is that the only utterance of the call can't be served for now.
    """

    async def pass_on() -> None:
        while (request := await requests.next()) is not None:
            await server.send(*request)
        await server.end_requests()

    passing = asyncio.create_task(pass_on())
    answered = False
    try:
        while (response := await server.read()) is not None:
            told = _told_in_stream(response, audit)
            if not answered and server.begun == 1 and (refusal := _refusal_for_now(told)):
                raise refusal
            requests.forget()
            await client.write(told)
            answered = True
    finally:
        passing.cancel()
        await asyncio.gather(passing, return_exceptions=True)


def _told_in_stream(response: bytes, audit: CallAudit) -> bytes:
    """Count and reword what a response reports; most responses are audio, and pass unchanged."""
    parsed = service_pb2.ModelStreamInferResponse.FromString(response)
    audit.answered(parsed)
    if not parsed.error_message:
        return response
    parsed.error_message = reworded_in_stream(parsed.error_message)
    return bytes(parsed.SerializeToString())


def _refusal_for_now(response: bytes) -> RefusedError | None:
    """The refusal that a response tells, if the same request can be served later or elsewhere."""
    if len(response) > SMALL_BYTES:
        return None  # It is audio.
    status, text = split_status(service_pb2.ModelStreamInferResponse.FromString(response).error_message)
    return RefusedError(status, text) if status == FOR_NOW else None


def _error(refusal: RefusedError, message: bytes) -> bytes:
    """The last response of a refused request, in the form of the models' own errors."""
    status = refusal.status if refusal.status in STATUSES else "INTERNAL"
    response = service_pb2.ModelStreamInferResponse(error_message=with_status(status, str(refusal)))
    try:
        request = parsed(service_pb2.ModelInferRequest, message)
    except RefusedError:
        logger.debug("a request that can't be parsed", exc_info=True)
    else:
        response.infer_response.model_name, response.infer_response.id = request.model_name, request.id
        response.infer_response.parameters[FINAL].bool_param = True
    return bytes(response.SerializeToString())


def parsed(kind: Any, message: bytes) -> Any:
    """Parse a message after its fields were counted.

    Raises:
        RefusedError: the bytes are no such message, or have too many fields.
    """
    if len(message) > SMALL_BYTES:
        check_fields(message, kind.DESCRIPTOR)
    try:
        return kind.FromString(message)
    except Exception:
        raise RefusedError("INVALID_ARGUMENT", f"the message is no {kind.DESCRIPTOR.name}") from None


def stop_request(model: str) -> bytes:
    """A request without a text, whose header tells the model which call to stop."""
    request = service_pb2.ModelInferRequest(model_name=model)
    request.inputs.add(name="target_text", datatype="BYTES", shape=[1, 1])
    request.raw_input_contents.append(serialize_byte_tensor(np.array([[b""]], np.object_)).item())
    return bytes(request.SerializeToString())
