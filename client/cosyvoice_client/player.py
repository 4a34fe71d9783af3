"""Audio heard while it arrives."""

from __future__ import annotations

import importlib.util
import queue
import shutil
import subprocess
import tempfile
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from cosyvoice_client.chunk import SAMPLE_RATE
from cosyvoice_client.errors import InvalidArgumentError
from cosyvoice_client.pcm import pcm16

Samples = npt.NDArray[np.float32]

PROGRAMS = {
    "aplay": "aplay -q -t raw -f S16_LE -c 1 -r {rate}",
    "ffplay": "ffplay -loglevel error -nodisp -autoexit -f s16le -ch_layout mono -ar {rate} -",
}
"""Programs that play raw 16-bit samples from standard input."""
LOOK_S = 0.2
"""Between looks for Ctrl-C while the last samples are heard: one right before a wait does not end it."""


class Output(ABC):
    """Where sound goes; what it is given it plays in order.

    Attributes:
        name: what plays.
    """

    name: str

    @abstractmethod
    def write(self, samples: Samples) -> None:
        """Append samples ``[n]``; waits when enough are pending.

        Raises:
            InvalidArgumentError: it can't play here.
        """

    @abstractmethod
    def finish(self) -> None:
        """Wait until everything has been heard.

        Raises:
            InvalidArgumentError: it could not be.
        """

    @abstractmethod
    def abort(self) -> None:
        """Fall silent at once."""


class SoundDevice(Output):
    """The Python package sounddevice."""

    name = "sounddevice"

    def __init__(self, rate: int) -> None:
        import sounddevice

        self._error = sounddevice.PortAudioError
        with self._reported():
            self._stream: Any = sounddevice.OutputStream(rate, channels=1, dtype="float32")
            self._stream.start()

    def write(self, samples: Samples) -> None:
        with self._reported():
            self._stream.write(samples.reshape(-1, 1))

    def finish(self) -> None:
        with self._reported():
            self._stream.stop()
            self._stream.close()

    def abort(self) -> None:
        self._stream.abort()
        self._stream.close()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except self._error as error:
            raise InvalidArgumentError(f"sounddevice can't play here: {error}") from error


class Program(Output):
    """A program that reads raw samples."""

    def __init__(self, name: str, rate: int) -> None:
        self.name = name
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        # By another thread: Ctrl-C interrupts the main one, perhaps before it knows that the program runs.
        with ThreadPoolExecutor(1) as starter:
            starter.submit(self._start, PROGRAMS[name].format(rate=rate).split()).result()

    def _start(self, command: list[str]) -> None:
        # In a session of its own: Ctrl-C is for this process, which decides what becomes of the player.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=self._said, start_new_session=True
        )
        # At the end of this process too: Ctrl-C may come where no block of code has been entered yet.
        self._end = weakref.finalize(self, _end, self._process)

    def write(self, samples: Samples) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(pcm16(samples).tobytes())
            self._process.stdin.flush()
        except BrokenPipeError:
            self._require_success()
            raise InvalidArgumentError(f"{self.name} has ended before the speech did") from None

    def finish(self) -> None:
        self._require_success()

    def abort(self) -> None:
        self._end()

    def _require_success(self) -> None:
        self._process.communicate()  # closes its input, which is the end of the speech
        if self._process.returncode:
            self._said.seek(0)
            lines = self._said.read().decode(errors="replace").split("\n")
            reason = next((line for line in reversed(lines) if line.strip()), "it doesn't say why")
            raise InvalidArgumentError(f"{self.name} can't play here: {reason.strip()}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


class Player:
    """Plays samples in the order given; in a ``with`` block, which ends when all has been heard.

    A thread hands them to the output, so that the next ones can be made or received meanwhile. After an
    error in the block, or Ctrl-C while the last ones are heard, there is silence at once.

    Attributes:
        rate: samples per second.
    """

    def __init__(self, output: Output, rate: int = SAMPLE_RATE) -> None:
        self.rate = rate
        self._output = output
        self._waiting: queue.SimpleQueue[Samples | None] = queue.SimpleQueue()
        self._failure: InvalidArgumentError | None = None
        self._heard = threading.Event()
        threading.Thread(target=self._play, name="player", daemon=True).start()

    @property
    def name(self) -> str:
        """Name of the program or library that plays."""
        return self._output.name

    def __call__(self, samples: Samples) -> None:
        """Append samples ``[n]``.

        Raises:
            InvalidArgumentError: what came before could not be played.
        """
        if self._failure is not None:
            raise self._failure
        self._waiting.put(samples)

    def __enter__(self) -> Player:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._waiting.put(None)
            while exc_type is None and not self._heard.wait(LOOK_S):
                pass
        finally:
            if not self._heard.is_set():
                self._output.abort()
        if exc_type is None and self._failure is not None:
            raise self._failure

    def _play(self) -> None:
        try:
            while (samples := self._waiting.get()) is not None:
                self._output.write(samples)
            self._output.finish()
        except InvalidArgumentError as error:
            self._failure = error
        finally:
            self._heard.set()


def open_player(rate: int = SAMPLE_RATE) -> Player:
    """The first of sounddevice, aplay and ffplay that is installed.

    Raises:
        InvalidArgumentError: there is none.
    """
    return Player(_open_output(rate), rate)


def _open_output(rate: int) -> Output:
    if importlib.util.find_spec("sounddevice"):
        return SoundDevice(rate)
    for name in PROGRAMS:
        if shutil.which(name):
            return Program(name, rate)
    wanted = "the Python package sounddevice, aplay (of alsa-utils) or ffplay (of ffmpeg)"
    raise InvalidArgumentError(f"nothing here can play audio: install {wanted}")
