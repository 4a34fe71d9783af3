"""The limits of a gateway: calls, bytes, connections, slow readers, and utterances."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from cosyvoice_runtime.errors import OverloadedError
from cosyvoice_runtime.gateway.options import GatewayOptions
from cosyvoice_runtime.gateway.policy import RefusedError
from cosyvoice_runtime.gateway.request_check import UtteranceRequest
from cosyvoice_runtime.metrics import Metric, Metrics
from cosyvoice_runtime.metrics.metrics import REFUSED, REQUESTS, REQUESTS_ABOUT
from cosyvoice_runtime.serving.speech.admission import BOARD_FILE, RefusalQueue, client_number, open_board

logger = logging.getLogger(__name__)

CALLS_RETRY_S = 5.0
"""A client waits so long when there are too many calls: an attack or a fault lasts for a while."""


class CallLimit:
    """Counts the calls of one event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count a call while the block runs, or refuse it at the limit."""
        if self._count >= self._limit:
            text = f"{self._limit} calls are in progress, the limit; try again in {CALLS_RETRY_S:g} s"
            raise RefusedError("UNAVAILABLE", text)
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


FREE_OF_CHARGE = 65_536
"""Requests up to this size are not counted: a text with a named voice always gets through."""
BYTES_RETRY_S = 2.0
"""A client waits so long when too many bytes are pending: most requests are answered sooner."""


class PendingBytes:
    """Counts the bytes of requests that tritonserver has not begun to answer, for one event loop."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.count = 0

    def take(self, size: int) -> int:
        """Count a request, and return the bytes to :meth:`give_back`; refuse it if too many are pending."""
        if size <= FREE_OF_CHARGE:
            return 0
        if self.count and self.count + size > self._limit:
            text = f"too many large requests at once; try again in {BYTES_RETRY_S:g} s"
            raise RefusedError("UNAVAILABLE", text)
        self.count += size
        return size

    def give_back(self, size: int) -> None:
        self.count -= size


MAX_CONNECTIONS = 4096
RESERVED = 320
"""Files of the process itself, and twice 128 connections: up to 128 are accepted before they are counted,
while others are being closed."""
FEWEST_CONNECTIONS = 16


def most_connections(files_each: int) -> int:
    """The most connections within the limit on open files, which is raised as far as allowed."""
    wanted = RESERVED + files_each * MAX_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    files = wanted if soft == resource.RLIM_INFINITY else min(soft, wanted)
    return max(FEWEST_CONNECTIONS, (files - RESERVED) // files_each)


SLOWEST_BYTES_PER_S = 2**15
"""Two thirds of the byte rate of 16-bit speech as it is played."""
LARGEST_BUFFER = 2**24
"""The most bytes that a client may have received and not read."""


class SlowReaderTimeout:
    """The slow-reader timeout of one call.

    The gateway sees of a client only when a write ends. A client that reads as it plays, out of a buffer of
    its own, asks for more when half of that has been played, and a large write ends when all of it has been
    taken. So the time that slow playback takes is added.

    Args:
        timeout_s: longest time in which the client may read nothing, added to what slow playback takes.
        client: its address, for the log.
        give_up: called when the client has read nothing for too long.
    """

    def __init__(self, timeout_s: float, client: str, give_up: Callable[[], None]) -> None:
        self._timeout_s = timeout_s
        self._client = client
        self._give_up = give_up
        self._written = 0

    @contextmanager
    def during(self, size: int) -> Iterator[None]:
        """Limit the time of a write of ``size`` bytes."""
        allowed_s = self._timeout_s + (min(self._written, LARGEST_BUFFER) + size) / SLOWEST_BYTES_PER_S
        timer = asyncio.get_running_loop().call_later(allowed_s, self._end, size, allowed_s)
        try:
            yield
        finally:
            timer.cancel()
        self._written += size

    def _end(self, size: int, allowed_s: float) -> None:
        logger.warning(
            "%s is given up: it did not take %d bytes within %.0f s, which are stalled_client_timeout_s and "
            "what slow playing takes of these bytes and %d before",
            self._client,
            size,
            allowed_s,
            min(self._written, LARGEST_BUFFER),
        )
        self._give_up()


class LoadShedder:
    """Decides by the board of admission. A model may still refuse a request that gets through here, because
    another one may take the capacity first."""

    def __init__(self, directory: Path, models: Collection[str]) -> None:
        self._queue = RefusalQueue(open_board(directory / BOARD_FILE))
        self._models = models
        self._directory = directory

    @classmethod
    def of(cls, options: GatewayOptions) -> LoadShedder | None:
        """The load shedder of a gateway; None without a shared board."""
        if not options.shared:
            return None
        return cls(Path(options.shared), [name for name in options.open_models if name not in options.stages])

    def check(self, request: UtteranceRequest) -> None:
        """Refuse a request for which there is no capacity, with the model's text.

        A client that comes back when told keeps its queue position.
        """
        counts = request.model in self._models and request.begins
        if not counts or not self._queue.capacity.known:
            return
        try:
            self._queue.require(client_number(request.client, request.elsewhere))
        except OverloadedError as error:
            self._refusals(request.model).add(1)
            raise RefusedError("UNAVAILABLE", str(error)) from None

    @cache  # noqa: B019 - a gateway has one
    def _refusals(self, model: str) -> Metric:
        """The count of refusals, which is shown from the first one on."""
        return Metrics(model, self._directory).counter(REQUESTS, REQUESTS_ABOUT, ending=REFUSED)
