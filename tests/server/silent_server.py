"""Servers that take a call and never answer it."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

TIMEOUT_S = 60.0


class SilentServer:
    """Takes connections and says nothing; ``called`` is set once something was sent to it."""

    def __init__(self) -> None:
        self.called = threading.Event()
        self._connections: list[socket.socket] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        for connection in self._connections:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            self._connections.append(connection)
            if connection.recv(1):
                self.called.set()
