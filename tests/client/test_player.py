"""Sound that is played while it arrives, through outputs that tests hold."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from itertools import repeat
from pathlib import Path

import numpy as np
import pytest

from cosyvoice_client.errors import InvalidArgumentError
from cosyvoice_client.player import Output, Player

TIMEOUT_S = 30.0


class HeldOutput(Output):
    """Plays when it is let, and fails when it is told to."""

    name = "held"

    def __init__(self, fails_at: int | None = None) -> None:
        self.let = threading.Event()
        self.fails_at = fails_at
        self.heard: list[int] = []
        self.finished = self.aborted = False

    def write(self, samples) -> None:
        assert self.let.wait(TIMEOUT_S)
        if len(self.heard) == self.fails_at:
            raise InvalidArgumentError("held can't play here: it was told to fail")
        self.heard.append(int(samples[0]))

    def finish(self) -> None:
        self.finished = True

    def abort(self) -> None:
        self.aborted = True
        self.let.set()


def part(number):
    return np.full(10, number, np.float32)


def play(output: Output, parts: Iterable[np.ndarray]) -> None:
    with Player(output) as player:
        for samples in parts:
            player(samples)


def test_samples_are_taken_while_others_are_heard():
    output = HeldOutput()
    with Player(output) as player:
        for number in range(100):
            player(part(number))
        assert output.heard == []
        output.let.set()
    assert (output.heard, output.finished, output.aborted) == (list(range(100)), True, False)


def test_failure_of_the_output_reaches_whoever_waits_for_the_end():
    output = HeldOutput(fails_at=1)
    output.let.set()
    with pytest.raises(InvalidArgumentError, match="told to fail"):
        play(output, [part(0), part(1)])
    assert output.heard == [0]


def test_failure_of_the_output_reaches_whoever_goes_on():
    output = HeldOutput(fails_at=0)
    output.let.set()
    with pytest.raises(InvalidArgumentError, match="told to fail"):
        play(output, repeat(part(0)))


def test_error_of_the_caller_is_silence_at_once():
    def parts() -> Iterator[np.ndarray]:
        yield part(0)
        raise KeyError

    output = HeldOutput()
    with pytest.raises(KeyError):
        play(output, parts())
    assert output.aborted


class Interrupted(threading.Event):
    """Ctrl-C came right before the wait, which ends by its time alone; Python tells of it then."""

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None, "nothing would end this wait"
        raise KeyboardInterrupt


def test_interrupt_right_before_the_wait_for_the_end_is_silence_soon():
    output = HeldOutput()
    with pytest.raises(KeyboardInterrupt), Player(output) as player:  # noqa: PT012
        player(part(1))
        player._heard = Interrupted()
    assert output.aborted


def test_no_player_is_left_when_the_program_ends_without_warning(tmp_path):
    """An interrupt may come where no block of code has been entered that could stop it."""
    pid, player = tmp_path / "pid", tmp_path / "aplay"
    player.write_text(f"#!/bin/sh\necho $$ > {pid}; exec sleep 600")
    player.chmod(0o755)
    program = (
        "import sys, time, pathlib\n"
        "from cosyvoice_client.player import Player, Program\n"
        "kept = Player(Program('aplay', 24000))\n"
        "while not pathlib.Path(sys.argv[1]).is_file(): time.sleep(0.01)\n"
        "while not pathlib.Path(sys.argv[1]).read_text().endswith('\\n'): time.sleep(0.01)\n"
        "raise KeyboardInterrupt"
    )
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "-c", program, pid], env=os.environ | {"PATH": path}, stderr=subprocess.PIPE
    )
    assert b"KeyboardInterrupt" in done.stderr
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()
