"""uvicorn's connections: limits on what a client may leave unsaid or unread, h2c and HTTP/1.0."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import State

from cosyvoice_front.errors import headers_too_large

MOST_HEADER_BYTES = 64 << 10
"""Most bytes of a request's first line and headers, and of anything else: the parser keeps them all."""


def connections(header_timeout_s: float, stall_s: float) -> type[HttpToolsProtocol]:
    """The class of connections for uvicorn's setting ``http``.

    Args:
        header_timeout_s: longest time from the beginning of the connection, and from the first byte after an
            answer, until the headers of the next request have come. What is left of a body after its answer
            must come in this time, too.
        stall_s: longest time that a connection which is closed may leave its last bytes unread, and half of
            that of an open one.
    """

    class PunctualConnection(HttpToolsProtocol):
        """Closes itself when the headers of a request don't come in time or don't end, or nobody reads."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(ClosingTransport(transport, self.loop, stall_s))  # type: ignore[arg-type]
            self._room = MOST_HEADER_BYTES
            self._unread: asyncio.TimerHandle | None = None
            self._is_idle = False
            self._expect_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            self._headers_due.cancel()
            self._read_on()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            self._unset_keepalive_if_required()
            if self._is_idle:
                self._is_idle = False
                self._expect_headers()
            while data and self.transport.get_protocol() is self and not self.transport.is_closing():
                part, data = data[: self._room], data[self._room :]
                self._room -= len(part)
                data = self._parse(part) + data
                if self._room <= 0:
                    self._refuse_headers()

        def _parse(self, data: bytes) -> bytes:
            """Parse what has come; what is to be parsed (again) after it."""
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")
            except httptools.HttpParserUpgrade as upgrade:
                if self._should_upgrade():
                    self.handle_websocket_upgrade()
                elif self.parser.get_method() == b"CONNECT":
                    self.send_400_response("This is no proxy.")
                else:
                    return self._without_upgrade() + data[upgrade.args[0] :]
            return b""

        def _without_upgrade(self) -> bytes:
            """Head of the request that has come, without its upgrade, which may be ignored (RFC 9110, 7.8).

            The parser takes a request with any upgrade to be without a body, so a new one reads it again.
            """
            start = b"%b %b HTTP/%b" % (
                self.parser.get_method(),
                self.url,
                self.parser.get_http_version().encode(),
            )
            headers = [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
            head = b"\r\n".join([start, *headers, b"", b""])
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own
            self._room = len(head) + MOST_HEADER_BYTES
            return head

        def on_headers_complete(self) -> None:
            if self._is_read_again():
                return
            self._headers_due.cancel()
            self._room = MOST_HEADER_BYTES
            super().on_headers_complete()
            if self.parser.get_http_version() == "1.0" and not self.parser.should_upgrade():
                self.cycle.__class__ = AnswerUntilClose

        def on_message_complete(self) -> None:
            if not self._is_read_again():
                super().on_message_complete()

        def _should_upgrade(self) -> bool:
            """A websocket begins with GET of HTTP/1.1; whatever else names one is a request as any."""
            begin = self.parser.get_method(), self.parser.get_http_version()
            return begin == (b"GET", "1.1") and super()._should_upgrade()

        def _is_read_again(self) -> bool:
            """Whether the parser stops at an upgrade that is none here."""
            return self.parser.should_upgrade() and not self._should_upgrade()

        def on_body(self, body: bytes) -> None:
            self._room = MOST_HEADER_BYTES
            super().on_body(body)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.cycle.response_complete and not self.transport.is_closing():
                if self.cycle.more_body:
                    self._expect_headers()
                else:
                    self._is_idle = True  # uvicorn's timeout_keep_alive counts until the next byte

        def pause_writing(self) -> None:
            super().pause_writing()
            # Whoever sends audio gives up before that, and tells it.
            self._unread = self.loop.call_later(2 * stall_s, self._give_up)

        def resume_writing(self) -> None:
            self._read_on()
            super().resume_writing()

        def _read_on(self) -> None:
            if self._unread is not None:
                self._unread.cancel()

        def _give_up(self) -> None:
            """Whatever is being sent: the end of an answer, or the beginning of the next one, waits too."""
            if self.transport.get_protocol() is self:
                self.transport.abort()

        def _expect_headers(self) -> None:
            self._headers_due = self.loop.call_later(header_timeout_s, self.transport.close)

        def _refuse_headers(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                body = json.dumps(headers_too_large(MOST_HEADER_BYTES).body()).encode()
                self.transport.write(
                    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: application/json\r\n"
                    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
                )
            self.transport.close()

    return PunctualConnection


class AnswerUntilClose(RequestResponseCycle):
    """The body ends with the connection: HTTP/1.0 knows no chunks."""

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.chunked_encoding = False
        else:
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


class PunctualSocket(WebSocketsSansIOProtocol):
    """A websocket that can be shut down while it is being closed; who reads nothing gets the last pongs."""

    _pong = b""

    def shutdown(self) -> None:
        if self.handshake_complete and self.conn.state is not State.OPEN:
            self.stop_keepalive()
            self.transport.close()  # send_close raises where the client has closed, or we have
        else:
            super().shutdown()

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        elif pongs := b"".join(self.conn.data_to_send()):  # of all pings of a read, at the first of them
            self._pong = pongs  # the latest are enough (RFC 6455, 5.5.3)

    def resume_writing(self) -> None:
        pong, self._pong = self._pong, b""
        self.transport.write(pong)  # in front of the audio that waits
        super().resume_writing()


class ClosingTransport:
    """A transport that doesn't wait for ever until its last bytes are read once it is closed."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, stall_s: float) -> None:
        self._transport = transport
        self._loop = loop
        self._stall_s = stall_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        """Close it when what has been written is read, or hasn't been for too long."""
        if self._transport.get_write_buffer_size() and not self._transport.is_closing():
            self._loop.call_later(self._stall_s, self._transport.abort)
        self._transport.close()
