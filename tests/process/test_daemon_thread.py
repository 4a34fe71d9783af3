"""Calls that may never return."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from cosyvoice_runtime.process.event_loop import in_daemon_thread


def test_value_and_error_of_a_call_come_back() -> None:
    assert asyncio.run(in_daemon_thread(lambda: 3)) == 3
    with pytest.raises(ZeroDivisionError):
        asyncio.run(in_daemon_thread(lambda: 1 // 0))


def test_call_that_would_end_the_program_is_an_error_of_whoever_waits() -> None:
    with pytest.raises(RuntimeError, match=r"the call ended with SystemExit\(3\)"):
        asyncio.run(in_daemon_thread(lambda: sys.exit(3)))


def test_call_that_returns_when_nobody_waits_any_more_harms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[object] = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    answer, threads = threading.Event(), []

    def call() -> None:
        threads.append(threading.current_thread())
        answer.wait()

    async def leave() -> None:
        waiting = asyncio.create_task(in_daemon_thread(call))
        while not threads:
            await asyncio.sleep(0.001)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(leave())
    answer.set()
    threads[0].join()
    assert errors == []


def test_process_ends_while_a_call_goes_on() -> None:
    program = """
import asyncio, threading
from cosyvoice_runtime.process.event_loop import in_daemon_thread

async def leave():
    await asyncio.wait([asyncio.create_task(in_daemon_thread(threading.Event().wait))], timeout=0.01)

asyncio.run(leave())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
