"""A stop is obeyed, whichever thread the system gives the signal to."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import signal, threading, time
from cosyvoice_runtime.supervisor.server import wait_awake

told, waiting, over = threading.Event(), threading.Event(), threading.Event()

def stop(*_):
    threading.Thread(target=told.set).start()

def another():
    waiting.set()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    over.wait()

signal.signal(signal.SIGTERM, stop)
thread = threading.Thread(target=another, daemon=True)
thread.start()
waiting.wait()

def kill():
    time.sleep(0.2)  # the main thread sleeps by then
    signal.pthread_kill(thread.ident, signal.SIGTERM)

threading.Thread(target=kill).start()
wait_awake(told)
print("stopped")
"""


def test_signal_that_another_thread_gets_ends_the_wait():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.stdout == "stopped\n", done.stderr
