"""What a client sends forges no line of a log, in whatever process."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from cosyvoice_runtime.process.log_lines import OneLine

ROOT = Path(__file__).resolve().parents[2]
FORGED = "2026-01-01 00:00:00,000 INFO    all is well"


def lines(message: str, *values: object, exc_info: object = None) -> list[str]:
    record = logging.LogRecord("name", logging.INFO, "file", 1, message, values, exc_info)
    return OneLine("%(levelname)s %(message)s").format(record).splitlines()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_whatever_ends_a_line_is_an_escape(end):
    assert lines("GET %s", f"/a{end}{FORGED}") == [f"INFO GET /a{ascii(end)[1:-1]}{FORGED}"]


@pytest.mark.parametrize("steering", ["\x1b[2K", "\x08", "\x00", "\u202e", "\u2066", "\x9b1A"])
def test_whatever_steers_a_terminal_is_an_escape(steering):
    (line,) = lines("%s", steering)
    assert line.isprintable()


def test_words_of_any_language_stay_as_they_are():
    assert lines("%s", "小明 Ünï (café) %0A") == ["INFO 小明 Ünï (café) %0A"]


def test_the_text_of_an_error_is_set_in_with_its_traceback():
    try:
        raise ValueError(f"what a client sent\n{FORGED}\r{FORGED}")
    except ValueError:
        first, *further = lines("failed", exc_info=sys.exc_info())
    assert first == "INFO failed"
    assert all(line.startswith("  | ") for line in further)
    assert any(FORGED in line for line in further)


@pytest.mark.parametrize(
    "setting_up",
    [
        "from cosyvoice_front.request_id import set_up_logging; set_up_logging()",
        "from cosyvoice_runtime.process.log_lines import log_lines; log_lines('INFO', '%(message)s')",
    ],
)
def test_processes_log_so(setting_up):
    code = f"{setting_up}; import logging; logging.getLogger('any').warning('%s', 'a\\nb')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("a\\nb\n")


def test_no_process_of_the_server_logs_otherwise():
    """Commands that write for a person at a terminal show no client's words."""
    server = [*ROOT.glob("cosyvoice_runtime/**/*.py"), *ROOT.glob("cosyvoice_front/**/*.py")]
    own = {path.relative_to(ROOT).as_posix() for path in server if "basicConfig" in path.read_text("utf-8")}
    commands = {
        "cosyvoice_runtime/alignment/__main__.py",
        "cosyvoice_runtime/check/__main__.py",
        "cosyvoice_runtime/local/cli.py",
    }
    assert own == commands | {"cosyvoice_runtime/process/log_lines.py"}
