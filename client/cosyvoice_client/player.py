"""Audio heard while it arrives."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from cosyvoice_client.chunk import SAMPLE_RATE
from cosyvoice_client.errors import InvalidArgumentError
from cosyvoice_client.writer import pcm16

PROGRAMS = {
    "aplay": "aplay -q -t raw -f S16_LE -c 1 -r {rate}",
    "ffplay": "ffplay -loglevel error -nodisp -autoexit -f s16le -ch_layout mono -ar {rate} -",
}
"""Programs that play raw 16-bit samples from standard input."""


class Player(ABC):
    """Plays samples in the order given; in a ``with`` block, which ends when all has been heard.

    Attributes:
        name: what plays.
    """

    name: str

    @abstractmethod
    def __call__(self, samples: npt.NDArray[np.float32]) -> None:
        """Append samples ``[n]``; waits when enough are pending."""

    @abstractmethod
    def finish(self) -> None:
        """Wait until everything has been heard."""

    @abstractmethod
    def abort(self) -> None:
        """Fall silent at once."""

    def __enter__(self) -> Player:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is None:
            self.finish()
        else:
            self.abort()


class SoundDevice(Player):
    """The Python package sounddevice."""

    name = "sounddevice"

    def __init__(self, rate: int) -> None:
        import sounddevice

        try:
            self._stream: Any = sounddevice.OutputStream(rate, channels=1, dtype="float32")
            self._stream.start()
        except sounddevice.PortAudioError as error:
            raise InvalidArgumentError(f"sounddevice can't play here: {error}") from error

    def __call__(self, samples: npt.NDArray[np.float32]) -> None:
        self._stream.write(samples.reshape(-1, 1))

    def finish(self) -> None:
        self._stream.stop()
        self._stream.close()

    def abort(self) -> None:
        self._stream.abort()
        self._stream.close()


class Program(Player):
    """A program that reads raw samples."""

    def __init__(self, name: str, rate: int) -> None:
        self.name = name
        command = PROGRAMS[name].format(rate=rate).split()
        # In a session of its own: Ctrl-C is for this process, which decides what becomes of the player.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def __call__(self, samples: npt.NDArray[np.float32]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(pcm16(samples).tobytes())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise InvalidArgumentError(f"{self.name} has ended: it can't play here") from None

    def finish(self) -> None:
        self._process.communicate()

    def abort(self) -> None:
        self._process.kill()
        self._process.communicate()


def open_player(rate: int = SAMPLE_RATE) -> Player:
    """The first of sounddevice, aplay and ffplay that is installed.

    Raises:
        InvalidArgumentError: there is none.
    """
    if importlib.util.find_spec("sounddevice"):
        return SoundDevice(rate)
    for name in PROGRAMS:
        if shutil.which(name):
            return Program(name, rate)
    wanted = "the Python package sounddevice, aplay (of alsa-utils) or ffplay (of ffmpeg)"
    raise InvalidArgumentError(f"nothing here can play audio: install {wanted}")
