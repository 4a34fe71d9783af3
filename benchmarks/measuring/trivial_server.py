"""A server that answers every request at once with five seconds of pcm: what is left is the client's time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

TONE = (b"\x00\x20" * 12 + b"\x00\xe0" * 12) * 500
"""Half a second of 1 kHz at 24 kHz, a quarter of full scale."""
CHUNKS = 10
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: audio/pcm;rate=24000\r\nContent-Length: %d\r\n\r\n"


@contextmanager
def trivial_server() -> Iterator[str]:
    """Its URL; it is a process of its own and ends with its input."""
    command = [sys.executable, __file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.stdin.close()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        while head := (await reader.readuntil(b"\r\n\r\n")).lower():
            await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
            writer.write(HEAD % (CHUNKS * len(TONE)))
            for _ in range(CHUNKS):
                writer.write(TONE)
                await writer.drain()
    writer.close()


async def _serve() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve())
