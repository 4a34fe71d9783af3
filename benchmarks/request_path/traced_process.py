"""Imported by each process of a server that ``benchmarks/request_path.py`` starts, before it starts threads.

What the process's threads do between the lines "begin" and "end" it sends back, as one line of JSON.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from types import FrameType
from typing import Any

LIBRARY = "cosyvoice_runtime."
GIVES = {"release": "lock", "put": "SimpleQueue", "send": "socket", "sendall": "socket", "sendmsg": "socket"}
TAKES = {"acquire": "lock", "get": "SimpleQueue", "recv": "socket", "recv_into": "socket"}
OWN_PIPE = ("_write_to_self", "_read_from_self")
"""Functions by which an event loop wakes itself; the one who asks it to is in ``call_soon_threadsafe``."""

events: list[tuple[float, int, str, str]] = []
"""When, in which thread, what happened, and to what."""
tracing = False


def profile(frame: FrameType, event: str, subject: Any) -> None:
    """Called by Python at each call and return; does nothing until the trace begins."""
    if tracing and event == "call":
        write_call(frame)
    elif tracing and event in ("c_call", "c_return") and frame.f_code.co_name not in OWN_PIPE:
        write_hand_over(event == "c_call", subject.__name__, getattr(subject, "__self__", None))


def write_call(frame: FrameType) -> None:
    """Write functions of the library, new objects of its classes, and calls for another thread's loop."""
    code, module = frame.f_code, frame.f_globals.get("__name__") or ""
    if code.co_name in ("__init__", "__new__"):
        made = frame.f_locals[code.co_varnames[0]]
        kind = made if isinstance(made, type) else type(made)
        if kind.__module__.startswith(LIBRARY):
            write("class", f"{kind.__module__}:{kind.__qualname__}")
    if code.co_name == "call_soon_threadsafe":
        write("call loop", str(getattr(frame.f_locals["self"], "_thread_id", None)))
    if module.startswith(LIBRARY) and not code.co_name.startswith("<"):
        write("call", f"{module}:{code.co_qualname}")


def write_hand_over(begins: bool, name: str, thing: Any) -> None:
    """Write calls by which threads and processes hand things to each other, or wait for them."""
    kind = type(thing).__name__
    subject = kind if kind == "socket" else f"{kind} {id(thing)}"
    if begins and kind == "PyCapsule" and name == "send":
        write("respond", subject)
    elif begins and GIVES.get(name) == kind:
        write("give", subject)
    elif TAKES.get(name) == kind:
        write("wait" if begins else "take", subject)


def write(what: str, subject: str) -> None:
    events.append((time.monotonic(), threading.get_ident(), what, subject))


def obey(address: str) -> None:
    """Say which process this is, and trace when told to, until the other end closes."""
    global tracing
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        lines = connection.makefile("rw")
        print(os.getpid(), file=lines, flush=True)
        for line in lines:
            tracing = line == "begin\n"
            if not tracing:
                threads = {thread.ident: thread.name for thread in threading.enumerate()}
                print(json.dumps({"threads": threads, "events": events}), file=lines, flush=True)
                events.clear()


threading.Thread(target=obey, args=(os.environ["REQUEST_PATH_SOCKET"],), name="trace", daemon=True).start()
sys.setprofile(profile)
threading.setprofile(profile)
