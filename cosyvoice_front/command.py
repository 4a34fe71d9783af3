"""Run the front as a process, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType

import uvicorn

from cosyvoice_client.address import DNS, require_known
from cosyvoice_client.errors import InvalidArgumentError
from cosyvoice_front.app import create_app
from cosyvoice_front.connections import PunctualSocket, connections
from cosyvoice_front.keys import Keys
from cosyvoice_front.lexicons import Lexicons
from cosyvoice_front.limits.address import check_address
from cosyvoice_front.request_id import set_up_logging
from cosyvoice_front.server_client import Upstream
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.process.file_limit import file_limit_problem
from cosyvoice_runtime.process.garbage import keep_loaded
from cosyvoice_runtime.process.listening import bound, is_loopback, own_addresses, with_port
from cosyvoice_runtime.settings import FrontSettings, Settings

logger = logging.getLogger("cosyvoice_front")

NEEDED_FILES = 256
"""Its own, and a connection for each of a few listeners."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m cosyvoice_front", description=__doc__)
    parser.add_argument("settings", nargs="*", metavar="SECTION.KEY=VALUE", help="see docs/settings.md")
    options = parser.parse_args(arguments)
    set_up_logging()
    try:
        settings = Settings.read(options.settings, os.environ)
        check(settings.front)
        check_bucket(settings.cosyvoice2.bucket_url)
        server = FrontServer(uvicorn_config(settings), settings.front.leave_s)
        listening = sockets(settings.front)
        keep_loaded()
    except CosyVoiceError as error:
        logger.error("%s", error)
        return 2
    with suppress(KeyboardInterrupt):  # which uvicorn raises after Ctrl-C, when it has ended
        server.run(listening)
    return 0 if server.started else 1  # after SIGTERM uvicorn ends the process by it


class FrontServer(uvicorn.Server):
    """Tells its address when clients may come, and balancers when they should go.

    uvicorn tells no address of sockets that it is given, and closes them with the first signal. Here SIGTERM
    makes the front unready first. A second one, or Ctrl-C, doesn't wait.

    Args:
        leave_s: from SIGTERM until the sockets are closed.
    """

    def __init__(self, config: uvicorn.Config, leave_s: float) -> None:
        super().__init__(config)
        self._leave_s = leave_s
        self._closes_at: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig != signal.SIGTERM or self._closes_at is not None or self.should_exit:
            super().handle_exit(sig, frame)
            return
        self._captured_signals.append(sig)
        self._closes_at = time.monotonic() + self._leave_s
        self.config.app.state.is_leaving = True  # type: ignore[union-attr]  # it is create_app's

    async def on_tick(self, counter: int) -> bool:
        if self._closes_at is not None and time.monotonic() >= self._closes_at:
            self.should_exit = True
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for each in (sockets or ()) if self.started else ():
            host, port = each.getsockname()[:2]
            logger.info("running on http://%s", with_port(host, port))


def check(settings: FrontSettings) -> None:
    """Refuse to start where the front could not serve safely.

    Raises:
        CosyVoiceError: what it needs is not there.
        InvalidInput: it would listen to strangers without asking for keys, or keys can't be read.
    """
    check_parts(settings)
    if settings.api_keys_file:
        Keys(settings)
    elif not all(is_loopback(address) for address in own_addresses(settings.host, "front.host")):
        limit = "set front.api_keys_file (python -m cosyvoice_front.keys makes keys), or listen on 127.0.0.1"
        raise InvalidInput("front.host", settings.host, limit)


def check_parts(settings: FrontSettings) -> None:
    """Refuse to start where something is not there that speech goes through, whoever asks for it.

    Raises:
        CosyVoiceError: too few files may be open.
        InvalidInput: lexicons can't be read, no voice can be kept, its host is none of this machine, the
            server's name is unknown, the Redis of its limits can't be one, or the port of its metrics is
            taken.
    """
    if problem := file_limit_problem(NEEDED_FILES):
        raise CosyVoiceError(problem)
    check_server(settings.grpc_url)
    if settings.voices_dir:
        check_writable(Path(settings.voices_dir))
    Lexicons.of(settings.lexicons)
    if settings.metrics_port:
        check_port_is_free(settings)
    if settings.limits_url:
        check_address(settings.limits_url)


def check_server(grpc_url: str) -> None:
    """Refuse a name that leads nowhere, but warn of one behind ``dns:///``, which has no address while none
    of its servers is ready.

    Raises:
        InvalidInput: it has no address.
    """
    try:
        require_known(grpc_url)
    except InvalidArgumentError as error:
        if not grpc_url.startswith(DNS):
            raise InvalidInput("front.grpc_url", grpc_url, str(error)) from None
        logger.warning("front.grpc_url: %s: no server is ready, or it is misspelt", error)


def check_writable(voices: Path) -> None:
    """Raise an InvalidInput where no voice can be kept in the directory."""
    try:
        voices.mkdir(parents=True, exist_ok=True)
        writable = os.access(voices, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    if not writable:
        limit = f"a directory that can be written by user {os.geteuid()}, or nothing"
        raise InvalidInput("front.voices_dir", str(voices), limit)


def check_port_is_free(settings: FrontSettings) -> None:
    """Raise an InvalidInput where metrics can't have their port."""
    if settings.metrics_port == settings.port:
        raise InvalidInput(
            "front.metrics_port", settings.metrics_port, "another one than front.port is needed"
        )
    try:
        for address in own_addresses(settings.host, "front.host"):
            bound(address, settings.metrics_port).close()
    except OSError as error:
        limit = f"a free one is needed ({error.strerror})"
        raise InvalidInput("front.metrics_port", settings.metrics_port, limit) from error


def check_bucket(url: str | None) -> None:
    """Raise an InvalidInput where no voice can be kept in the bucket that is named."""
    if url is not None:
        # Imported here because it needs safetensors, which a front without uploads does without.
        from cosyvoice_runtime.voice.opening import open_bucket

        open_bucket(url, check=True)


def sockets(settings: FrontSettings) -> list[socket.socket]:
    """Bound to all addresses of the host, at one port.

    Raises:
        InvalidInput: the port can't be used.
    """
    opened: list[socket.socket] = []
    port = settings.port
    try:
        for address in own_addresses(settings.host, "front.host"):
            opened.append(bound(address, port))
            port = opened[0].getsockname()[1]
    except OSError as error:
        raise InvalidInput("front.port", port, f"a free one is needed ({error.strerror})") from error
    return opened


def uvicorn_config(settings: Settings, upstream: Upstream | None = None) -> uvicorn.Config:
    """One process; more of them are started beside each other."""
    front = settings.front
    return uvicorn.Config(
        create_app(settings, upstream),
        host=front.host,
        port=front.port,
        http=connections(front.arrival_timeout_s, front.stalled_client_timeout_s),
        loop="uvloop",
        ws=PunctualSocket,
        ws_max_size=front.max_request_mib << 20,  # wires say how large each message may be
        ws_ping_timeout=None,  # pongs wait behind audio: socket.py tells who doesn't read
        ws_per_message_deflate=False,  # it costs time, and makes base64 of speech hardly smaller
        timeout_keep_alive=front.keep_alive_timeout_s,  # type: ignore[arg-type]  # a float does as well
        access_log=False,  # request_id.py writes a line for each request
        log_config=None,
        timeout_graceful_shutdown=round(front.drain_timeout_s),
        server_header=False,
    )
