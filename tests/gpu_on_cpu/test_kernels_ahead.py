"""A process that compiles kernels ahead, and captures that wait for it."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from cosyvoice_runtime.compilation.deployment import Deployment
from cosyvoice_runtime.gpu.kernels import ahead
from cosyvoice_runtime.gpu.kernels.ahead import ALL, SPEECH_LM, lock_cache, note_compiled, wait_until_compiled
from cosyvoice_runtime.metrics import Metrics, progress
from cosyvoice_runtime.serving.hosted.kernels_ahead import compile_ahead

COMPILER = """#!/bin/sh
while [ ! -e "$1" ]; do sleep 0.05; done
echo "1 of 2"
echo "2 of 2"
exit "$2"
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of compiled kernels."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(Deployment, "read", lambda _: SimpleNamespace(key="some-kernels"))
    return tmp_path / "cache"


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A program in Python's place, which ends when the file of this path is there, with status 0."""
    go_on = fake_compiler(tmp_path, monkeypatch, status=0)
    yield go_on
    go_on.touch()


def fake_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, status: int) -> Path:
    go_on, program = folder / "go on", folder / "python"
    program.write_text(COMPILER.replace('"$1"', f'"{go_on}"').replace('"$2"', str(status)))
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(progress, "TOLD_EVERY_S", 0.0)
    return go_on


def test_nobody_waits_where_nothing_is_compiled(cache):
    wait_until_compiled()
    assert not cache.exists()


@pytest.mark.usefixtures("cache")
def test_captures_wait_until_kernels_are_compiled(compiler, caplog):
    caplog.set_level(logging.INFO)
    compile_ahead(Path("repository"), Metrics("token2wav"))
    waiting = threading.Thread(target=wait_until_compiled)
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    compiler.touch()
    waiting.join(10)
    assert not waiting.is_alive()
    assert_told(caplog, "compiled 1 of 2 kernels, about", "2 kernels compiled in")


@pytest.mark.usefixtures("cache")
def test_the_speech_lm_waits_for_its_own_kernels_alone():
    of_lm, every = lock_cache()
    waiting = {name: threading.Thread(target=wait_until_compiled, args=[name]) for name in (SPEECH_LM, ALL)}
    with every:
        with of_lm:
            for thread in waiting.values():
                thread.start()
            waiting[SPEECH_LM].join(0.3)
            assert waiting[SPEECH_LM].is_alive()
        waiting[SPEECH_LM].join(10)
        assert not waiting[SPEECH_LM].is_alive()
        assert waiting[ALL].is_alive()
    waiting[ALL].join(10)
    assert not waiting[ALL].is_alive()


@pytest.mark.usefixtures("cache")
def test_one_process_at_a_time_compiles(compiler, caplog):
    caplog.set_level(logging.INFO)
    for _ in range(2):
        compile_ahead(Path("repository"), Metrics("token2wav"))
    compiler.touch()
    wait_until_compiled()
    assert_told(caplog, "kernels are being compiled by another process", "2 kernels compiled in")
    assert caplog.text.count("2 kernels compiled in") == 1


@pytest.mark.usefixtures("cache", "compiler")
def test_nobody_waits_for_ever(monkeypatch, caplog):
    monkeypatch.setattr(ahead, "LONGEST_S", 0.2)
    compile_ahead(Path("repository"), Metrics("token2wav"))
    wait_until_compiled()
    assert "kernels are not compiled after" in caplog.text


@pytest.mark.usefixtures("compiler")
def test_a_cache_that_cannot_be_written_ends_nothing(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(Deployment, "read", lambda _: SimpleNamespace(key="some-kernels"))
    compile_ahead(Path("repository"), Metrics("token2wav"))
    wait_until_compiled()
    assert "kernels are compiled one by one" in caplog.text


def test_nothing_is_started_where_all_is_compiled(cache, compiler, caplog):
    caplog.set_level(logging.INFO)
    cache.mkdir()
    note_compiled("some-kernels")
    compile_ahead(Path("repository"), Metrics("token2wav"))
    wait_until_compiled()
    assert not compiler.exists()
    assert caplog.text == ""


@pytest.mark.usefixtures("cache")
def test_a_failure_is_told_and_ends_nothing(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    fake_compiler(tmp_path, monkeypatch, status=3).touch()
    compile_ahead(Path("repository"), Metrics("token2wav"))
    wait_until_compiled()
    assert_told(caplog, "2 kernels compiled in", "ended with status 3")


def assert_told(caplog: pytest.LogCaptureFixture, *texts: str) -> None:
    """The log has all of these soon."""
    until = time.monotonic() + 10
    while time.monotonic() < until and not all(text in caplog.text for text in texts):
        time.sleep(0.02)
    assert [text for text in texts if text not in caplog.text] == []
