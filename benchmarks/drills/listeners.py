"""Listeners of speech through a front, each in a thread of its own."""

from __future__ import annotations

import http.client
import json
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any

import numpy as np
import numpy.typing as npt

from cosyvoice_client import Timeline
from drills.front import Front

TIMEOUT_S = 300.0
RATE = 24_000
SHORT = "Hello world. How are you?"
TEXT = "word " * 24
"""Twelve seconds of speech."""
LONG = "word " * 200
"""A minute and a half of speech, which nobody hears to its end."""
SEED = 7
ROUNDING = 164
"""In steps of 16 bits: what is computed together with other utterances is rounded otherwise."""

PAUSE_S = 3.0
"""As long as a sentence of three seconds is heard, which is made sooner."""

Samples = npt.NDArray[np.int16]


class Listener:
    """Asks for speech, as 16 bit samples where nothing else is said, and hears it until it ends or is left.

    Args:
        trace: ``traceparent`` of the request.

    Attributes:
        status: of HTTP, as soon as it is known.
        headers: of the answer, their names in lower case.
        failure: why the answer was cut, or None.
        asked_s: the time of the request by the monotonic clock.
        timeline: the samples as they arrived, in seconds after the request.
    """

    def __init__(
        self, front: Front, text: str = TEXT, key: str = "none", trace: str = "", **fields: Any
    ) -> None:
        body = {"model": "tts-1", "voice": "default", "input": text, "response_format": "pcm", "seed": SEED}
        self._body = json.dumps(body | fields).encode()
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        self._headers |= {"traceparent": trace} if trace else {}
        self._connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=TIMEOUT_S)
        self._connection.connect()
        self._socket = self._connection.sock  # which an answer that closes the connection takes away
        self._heard = bytearray()
        self._begun, self._left = threading.Event(), False
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.failure: Exception | None = None
        self.asked_s = time.monotonic()
        self.timeline = Timeline()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def begin(self) -> int:
        """Wait for the first audio, or for what came instead; return the status."""
        assert self._begun.wait(TIMEOUT_S), "nothing was heard"
        assert self.status is not None, self.failure
        return self.status

    def leave(self) -> None:
        """Close the connection, whatever is on its way."""
        self._left = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.end()

    def end(self) -> int:
        """Wait for the end; return the status."""
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "it doesn't end"
        return self.begin()

    @property
    def body(self) -> bytes:
        """An answer that came to its end."""
        assert self.end() == 200, self._heard
        assert self.failure is None, self.failure
        return bytes(self._heard)

    @property
    def whole(self) -> Samples:
        """All samples of an answer that came to its end."""
        return np.frombuffer(self.body, "<i2")

    def _listen(self) -> None:
        try:
            self._connection.request("POST", "/v1/audio/speech", self._body, self._headers)
            answer = self._connection.getresponse()
            self.headers = {name.lower(): value for name, value in answer.getheaders()}
            self.status = answer.status
            while piece := answer.read1(65536):
                self._heard += piece
                self.timeline.add(time.monotonic() - self.asked_s, len(piece) / 2 / RATE)
                self._begun.set()
        except (OSError, http.client.HTTPException) as error:
            if not self._left:
                self.failure = error
        finally:
            self._begun.set()
            self._connection.close()


@contextmanager
def listening(
    fronts: Sequence[Front], count: int, text: str = LONG, **fields: Any
) -> Iterator[list[Listener]]:
    """So many listeners at once, spread over the fronts, who leave at the end at the latest."""
    listeners: list[Listener] = []
    try:
        listeners += [Listener(fronts[number % len(fronts)], text, **fields) for number in range(count)]
        yield listeners
    finally:
        for listener in listeners:
            listener.leave()


def served_at_last(front: Front, text: str = SHORT, most_tries: float = math.inf) -> list[Listener]:
    """The tries of a listener that comes back each time when it is told to."""
    tries = [Listener(front, text)]
    while len(tries) < most_tries and tries[-1].end() == HTTPStatus.SERVICE_UNAVAILABLE:
        time.sleep(int(tries[-1].headers["retry-after-ms"]) / 1000)
        tries.append(Listener(front, text))
    return tries


class EndlessListener(threading.Thread):
    """Asks for the same speech again and again, with pauses between, until it is told to stop.

    Attributes:
        heard: how often it heard the whole speech.
        complaint: what was wrong; it asks for no more then.
    """

    def __init__(self, hear: Callable[[], str | None]) -> None:
        super().__init__(daemon=True)
        self._hear = hear
        self._enough = threading.Event()
        self.heard = 0
        self.complaint: str | None = None
        self.start()

    def run(self) -> None:
        while not self._enough.is_set():
            try:
                self.complaint = self._hear()
            except Exception as error:
                self.complaint = repr(error)
            if self.complaint:
                return
            self.heard += 1
            self._enough.wait(PAUSE_S)

    def stop(self) -> None:
        """Let it hear what it has begun to its end."""
        self._enough.set()
        self.join(TIMEOUT_S)
        assert not self.is_alive()


def difference(heard: Samples, uncut: Samples) -> str | None:
    """Say how two utterances differ; None where they are the same but for rounding."""
    if len(heard) != len(uncut):
        return f"{len(heard)} samples in place of {len(uncut)}"
    apart = np.abs(heard.astype(np.int32) - uncut)
    where = int(apart.argmax()) if len(apart) else 0
    return f"{apart[where]} steps apart at sample {where}" if len(apart) and apart[where] > ROUNDING else None
