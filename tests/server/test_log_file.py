"""A server's log takes bounded room while processes hold it open."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cosyvoice_runtime.supervisor.preflight import Triton
from cosyvoice_runtime.supervisor.process import LogFile, ServerProcess, new_run_directory
from eventually import eventually

ECHO = [sys.executable, "-u", "-c", "import sys\nfor line in sys.stdin: print(line, end='')"]
FLOOD = """#!/bin/sh
(head -c 300000 /dev/zero; echo; echo error: the last word) | dd bs=400000 iflag=fullblock status=none
sleep 1000
"""


class Writer:
    """A process that holds a log open and writes what it is told."""

    def __init__(self, log: LogFile) -> None:
        with log.open() as file:
            self.process = subprocess.Popen(ECHO, stdin=subprocess.PIPE, stdout=file, text=True)
        self._path = log.path

    def tell(self, line: str) -> None:
        """What it writes then may be gone before anybody has seen it."""
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)

    def write(self, line: str) -> None:
        self.tell(line)
        eventually(lambda: self._path.read_text().endswith(line + "\n"))


@contextmanager
def writer(log: LogFile) -> Iterator[Writer]:
    log.path.parent.mkdir(parents=True, exist_ok=True)
    held = Writer(log)
    yield held
    held.process.communicate()


def older(log: LogFile) -> Path:
    return log.path.with_name("server.log.1")


def test_process_goes_on_at_the_start_of_a_file_that_was_emptied(tmp_path: Path):
    log = LogFile(tmp_path / "server.log", 10)
    with writer(log) as process:
        process.write("0123456789")
        log.turn_over()
        assert (older(log).read_text(), log.path.read_text()) == ("0123456789\n", "")
        process.write("abc")
        log.turn_over()
        assert (older(log).read_text(), log.path.read_text()) == ("0123456789\n", "abc\n")
        process.write("defghijk")
        log.turn_over()
        assert (older(log).read_text(), log.path.read_text()) == ("abc\ndefghijk\n", "")


def test_text_of_a_run_begins_with_the_run(tmp_path: Path):
    log = LogFile(tmp_path / "logs" / "server.log", 30)
    with writer(log) as process:
        process.write("of the run before")
        log.begin()
        process.write("one")
        assert log.text() == "one\n"
        process.tell("two, which makes it full")
        eventually(lambda: older(log).is_file() and older(log).read_text().endswith("full\n"))
        eventually(lambda: not log.path.read_text())
        process.write("three")
        assert log.text() == "three\n"
        log.end()


def test_file_that_can_not_be_copied_is_left_alone_and_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("cosyvoice_runtime.supervisor.process.INTERVAL_S", 0.01)
    log = LogFile(tmp_path / "server.log", 1)
    older(log).mkdir()
    with writer(log) as process:
        log.begin()
        process.write("kept")
        eventually(lambda: "can't be kept to its size" in caplog.text)
        log.end()
    assert log.path.read_text() == "kept\n"


def test_log_of_a_server_is_kept_to_its_size_while_it_runs(tmp_path: Path):
    script = tmp_path / "server.sh"
    script.write_text(FLOOD)
    script.chmod(0o755)
    log = LogFile(tmp_path / "server.log", 2**16)
    process = ServerProcess(Triton(script), log, new_run_directory(), {}, lambda code: None)
    process.start(tmp_path, [])
    try:
        eventually(lambda: older(log).exists() and "the last word" in older(log).read_text())
        eventually(lambda: not log.path.read_text())
        assert process.errors() == []
    finally:
        process.stop(0.0)
