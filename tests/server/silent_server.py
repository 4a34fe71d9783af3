"""Servers that take a call and never answer it."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

TIMEOUT_S = 60.0


class SilentServer:
    """Takes connections and says nothing; ``called`` is set once something was sent to it."""

    def __init__(self, folder: Path) -> None:
        self.called = threading.Event()
        self._connections: list[socket.socket] = []
        self.path = folder / "socket"
        self._socket = socket.create_server(str(self.path), family=socket.AF_UNIX)

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
