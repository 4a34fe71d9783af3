"""Calls of a model host, on its socket."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
import tempfile
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cosyvoice_runtime.engine.frames import (
    Array,
    Frame,
    FrameError,
    FrameReader,
    read_tensors,
    write_frame,
)
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput, StageError
from cosyvoice_runtime.metrics.metrics import shared_directory

logger = logging.getLogger(__name__)

NETWORKS, SPEECH = "networks", "speech"
"""Names of the sockets of the engine, and of the process of cosyvoice2."""
AGAIN_S = 0.05
"""Time between two tries to reach a host that has no room for one more caller."""
MOST_IDLE = 64
"""Connections that are kept for later calls."""
MOST_UNREAD_FRAMES = 16
"""Answers that wait for their reader here; those that follow wait in the socket, and then in the host."""


def host_socket(name: str = NETWORKS) -> Path:
    """The socket on which the models of a process answer, in the directory of the server's run.

    Without the supervisor it is in a folder of this user, which is named after the server's process.
    """
    return (shared_directory() or _folder_of(os.getppid())) / name


def leave_socket(path: Path) -> None:
    """Remove the socket of :func:`host_socket`, and a folder that exists for it alone."""
    path.unlink(missing_ok=True)
    if shared_directory() is None:
        with suppress(OSError):  # The folder may not be empty.
            path.parent.rmdir()


def _folder_of(server: int) -> Path:
    folder = Path(tempfile.gettempdir()) / f"cosyvoice-{os.getuid()}-{server}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise CosyVoiceError(f"{folder}: it is to be a folder that only this user may enter")
    return folder


def request_frame(
    model: str,
    name: str,
    tensors: Mapping[str, Array],
    *,
    parameters: str = "",
    tell: bool = False,
) -> bytes:
    """The frame of a request, or an InvalidInput where it can't be sent.

    Args:
        name: id of the request.
        parameters: its own and the headers that came with it, in JSON as Triton gives them.
        tell: whether the host says when the model has it.
    """
    header = {"model": model, "id": name, "parameters": parameters, "tell": tell}
    return write_frame(header, tensors)


class HostClient:
    """Makes calls of the host of a socket; made and used in one event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[HostConnection] = []

    def call(self, model: str) -> HostCall:
        return HostCall(self, model)

    def require(self) -> None:
        """Raise an OSError unless the host is there."""
        self._idle = [connection for connection in self._idle if connection.idle]
        if not self._idle:
            with suppress(BlockingIOError):  # The host is there, and its backlog is full.
                _connected(self._path).close()

    async def connect(self) -> HostConnection:
        """A connection that no call uses; an OSError tells that the host is not there."""
        while self._idle:
            if (connection := self._idle.pop()).idle:
                return connection
            connection.hang_up()
        loop = asyncio.get_running_loop()
        unconnected = await self._reach()
        _, connection = await loop.create_unix_connection(HostConnection, sock=unconnected)
        return connection

    def keep(self, connection: HostConnection) -> None:
        """Keep a connection for a later call."""
        if len(self._idle) < MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.hang_up()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().hang_up()

    async def _reach(self) -> socket.socket:
        while True:
            try:
                return _connected(self._path)
            except BlockingIOError:  # The host is there, and its backlog is full.
                await asyncio.sleep(AGAIN_S)


def _connected(path: Path) -> socket.socket:
    """A Unix socket that is connected at once or not at all: asyncio would wait for a host with a full
    backlog."""
    connecting = socket.socket(socket.AF_UNIX)
    try:
        connecting.setblocking(False)
        connecting.connect(str(path))
    except OSError:
        connecting.close()
        raise
    return connecting


class HostCall:
    """A request to a model, and its answers. Its user leaves it in the end, whatever happens."""

    def __init__(self, client: HostClient, model: str) -> None:
        self._client = client
        self._model = model
        self._connection: HostConnection | None = None

    async def begin(self, request: bytes) -> None:
        """Send the request; an OSError tells that the host is not there."""
        self._connection = await self._client.connect()
        self._connection.send(request)

    async def next(self) -> dict[str, Array] | None:
        """The next answer, without tensors if it only tells that the model has the request; None at the end.

        Raises:
            StageError: the model's error.
            OSError: the host went away.
        """
        while self._connection is not None:
            frame = await self._connection.next()
            if frame.header.get("last"):
                self._client.keep(self._connection)
                self._connection = None
            if "status" in frame.header:
                raise StageError(frame.header.get("message", "no details"), frame.header["status"])
            if "tensors" in frame.header or self._connection is not None:
                return self._tensors(frame)
        return None

    def _tensors(self, frame: Frame) -> dict[str, Array]:
        try:
            return read_tensors(frame)
        except InvalidInput as error:
            raise StageError(f"{self._model}: {error}", "INTERNAL") from None

    def leave(self) -> None:
        """Cancel the call, unless it has ended."""
        if self._connection is not None:
            self._connection.hang_up()
            self._connection = None


class HostConnection(asyncio.Protocol):
    """A connection to a host; one call uses it at a time."""

    def __init__(self) -> None:
        self._lost = False
        self._reader = FrameReader()
        self._frames: deque[Frame] = deque()
        self._changed: asyncio.Future[None] | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._frames.extend(self._reader.feed(data))
        except FrameError as error:
            logger.warning("the host can't be understood: %s", error)
            self._transport.abort()
        if len(self._frames) >= MOST_UNREAD_FRAMES:
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, _error: Exception | None) -> None:
        self._lost = True
        self._wake()

    @property
    def idle(self) -> bool:
        """Whether a call may use this connection."""
        return not self._lost and not self._frames

    def send(self, data: bytes) -> None:
        if not self._lost:
            self._transport.write(data)

    async def next(self) -> Frame:
        """The next frame of the host; a ConnectionResetError tells that it hung up."""
        while not self._frames:
            if self._lost:
                raise ConnectionResetError("the host hung up")
            self._changed = asyncio.get_running_loop().create_future()
            await self._changed
        if len(self._frames) == MOST_UNREAD_FRAMES:
            self._transport.resume_reading()
        return self._frames.popleft()

    def hang_up(self) -> None:
        self._transport.abort()

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
