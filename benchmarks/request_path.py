#!/usr/bin/env python3
"""Trace a streaming request through a real server with the demo voice, for the tables of docs/request.md.

    python benchmarks/request_path.py            print them
    python benchmarks/request_path.py --write    and put them into the page
    python benchmarks/request_path.py --files    and name the files of each process

Each process of the server traces itself (request_path/traced_process.py), without a word of it in the
server's code. The voice is known and everything loaded before the request. A function counts that runs for
the request and not also without one. Threads of one pool count as one.

The road of a later chunk is that of a second clause, pushed when the first has been heard: nothing else is
under way, so what a thread took last is the cause of what it gives next. The road begins where speech tokens
are drawn: in the first of the two threads that call most functions of networks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from cosyvoice_client import AsyncSpeechClient, SpeechRequest
from cosyvoice_runtime.process.processes import living
from cpu import DEMO_VOICE, CpuServer, Variant
from measuring.house import house
from measuring.machine import ROOT
from measuring.marked import put
from measuring.report import table
from measuring.server_processes import descendants, name_of

PAGE, MARK = ROOT / "docs" / "request.md", "request_path"
TRACED = Path(__file__).with_suffix("") / "traced_process.py"
NETWORKS = ("flow.", "gpu.", "lm.", "onnx.", "tensorrt.", "token2wav.", "vocoder.")
"""Folders of cosyvoice_runtime/ that compute."""
DRIVERS = ("lm.engines.", "lm.scheduler.")
"""Folders among them that decide what is computed next."""
SETTINGS = ("device=cpu", "tensorrt_llm.engine=onnx", "token2wav.backend=onnx")
"""One device, and not one for each of several cores; whatever else the machine has."""
TEXT = "The train to the coast leaves from platform four, and the weather is very good today."
CLAUSES = "The train leaves from platform four.", "Yes. "
CONNECT_S, SETTLE_S, PAUSE_S = 1.0, 2.0, 0.5
ROADS = 3
"""So often a later chunk is followed: a thread that something else wakes just then hides a step of one."""
OUTSIDE = "without networks", "classes without networks"
Place = tuple[str, str]
"""A process and a thread, by their names."""


class Event(NamedTuple):
    at: float
    place: Place
    what: str
    subject: str


class HandOver(NamedTuple):
    taken: float
    taker: Place
    given: float
    giver: Place


class Tracer:
    """The traced processes of a server that is up.

    Attributes:
        threads: names of Python's threads in each process, after a trace.
        idle: what each thread calls and makes without requests, too; no trace has it.
    """

    def __init__(self, listener: socket.socket) -> None:
        self._lines: dict[str, IO[str]] = {}
        self.threads: dict[str, set[str]] = {}
        self.idle: set[tuple[Place, str]] = set()
        listener.settimeout(CONNECT_S)
        names = {process.pid: name_of(process) for process in living()}
        try:
            while True:
                lines = listener.accept()[0].makefile("rw")
                self._lines[names[int(lines.readline())]] = lines
        except TimeoutError:
            return

    async def during(self, work: Awaitable[object], settle_s: float) -> list[Event]:
        """Events of the processes until some time after the work, in order."""
        for lines in self._lines.values():
            print("begin", file=lines, flush=True)
        await work
        await asyncio.sleep(settle_s)
        events = []
        for process, lines in self._lines.items():
            print("end", file=lines, flush=True)
            found = json.loads(lines.readline())
            names = {ident: re.sub(r"_\d+$", "", name) for ident, name in found["threads"].items()}
            self.threads[process] = {*names.values()} - {"trace"}
            for at, ident, what, subject in found["events"]:
                place = process, names.get(str(ident), "ended")
                events.append(Event(at, place, what, names.get(subject, subject)))
        return sorted(event for event in events if (event.place, event.subject) not in self.idle)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--house", action="store_true", help="only the sizes of the code, without a server")
    parser.add_argument("--files", action="store_true", help="also name the files of each process")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/request.md")
    options = parser.parse_args(arguments)
    for mark, text in {"house": house()}.items() if options.house else {MARK: measure(options.files)}.items():
        print(text)
        if options.write:
            put(PAGE, mark, text)


def measure(files: bool = False) -> str:
    """Start a server, trace it, and describe what was seen.

    Args:
        files: also print their modules' names.
    """
    with tempfile.TemporaryDirectory(prefix="path-") as name, socket.socket(socket.AF_UNIX) as listener:
        folder = Path(name)
        listener.bind(f"{folder}/socket")
        listener.listen(64)
        server = CpuServer(Variant("traced", SETTINGS), DEMO_VOICE, folder)
        importing = f"import sys; sys.path.append({str(TRACED.parent)!r}); import {TRACED.stem}\n"
        (folder / "sitecustomize.py").write_text(importing)  # which Pythons inside Triton don't read
        for model in folder.glob("model_repo/*/1/model.py"):
            model.write_text(f"{model.read_text()}\n{importing}")
        os.environ |= {"PYTHONPATH": name, "REQUEST_PATH_SOCKET": f"{folder}/socket"}
        try:
            with server:
                return asyncio.run(ask(server.url, Tracer(listener), files))
        finally:
            del os.environ["PYTHONPATH"], os.environ["REQUEST_PATH_SOCKET"]


async def ask(url: str, tracer: Tracer, files: bool) -> str:
    async with AsyncSpeechClient(url) as client:
        for _ in range(2):  # what is loaded once is loaded then
            await speak(client)
        idle = await tracer.during(asyncio.sleep(0), SETTLE_S)
        tracer.idle = {(event.place, event.subject) for event in idle if event.what in ("call", "class")}
        seen = await tracer.during(speak(client), SETTLE_S)
        roads = Counter([tuple(await later_road(client, tracer)) for _ in range(ROADS)])
    named = {f"{event.place[0]}: {event.subject.split(':')[0]}" for event in seen if event.what == "call"}
    print(*sorted(named) if files else [], sep="\n")
    [(road, _)] = roads.most_common(1)
    columns = "process", "files", *OUTSIDE, "functions", "threads at work", "threads"
    processes = sorted(name_of(each) for each in descendants(os.getpid()) if each.pid != os.getpid())
    return (
        f"{table(columns, path_rows(seen, tracer.threads))}\n\nThe server has {len(processes)} processes: "
        f"{', '.join(processes)}.\n\nA later chunk is handed on {len(road) - 1} times: {' → '.join(road)}."
    )


async def speak(client: AsyncSpeechClient) -> None:
    async for _ in client.speak(SpeechRequest(TEXT, seed=1)):
        pass


async def later_road(client: AsyncSpeechClient, tracer: Tracer) -> list[str]:
    """Threads that the second clause passes."""
    async with client.speak_text(SpeechRequest("", seed=1)) as speech:
        chunks = aiter(speech)

        async def say(clause: str) -> float:
            await speech.push(clause)
            await speech.flush()
            while not (await anext(chunks)).finish_reason:
                pass
            return time.monotonic()

        await say(CLAUSES[0])
        await asyncio.sleep(PAUSE_S)
        saying = asyncio.ensure_future(say(CLAUSES[1]))
        events = await tracer.during(saying, PAUSE_S)
        await speech.end()
    return road_to(saying.result(), events)


def path_rows(seen: Sequence[Event], threads: dict[str, set[str]]) -> list[list[str]]:
    """A row for each process that runs something for the request, and one for all."""
    rows = []
    for process in sorted({event.place[0] for event in seen if event.what == "call"}):
        own = [event for event in seen if event.place[0] == process]
        workers = {event.place for event in own if event.what == "call"}
        rows.append([process, *counts(own), str(len(workers)), str(len(threads[process]))])
    return [*rows, ["all, each once", *counts(seen), "", ""]]


def counts(events: Sequence[Event]) -> list[str]:
    """Files, then files and classes without those of networks, then functions."""
    calls, classes = ({each.subject for each in events if each.what == what} for what in ("call", "class"))
    files = {call.partition(":")[0] for call in calls}
    others = [[subject for subject in subjects if not computes(subject)] for subjects in (files, classes)]
    return [str(len(found)) for found in (files, *others, calls)]


def computes(subject: str) -> bool:
    """Whether a module, or a function of it, belongs to a network."""
    module = subject.split(":")[0].removeprefix("cosyvoice_runtime.")
    return module.startswith(NETWORKS) and not module.startswith(DRIVERS)


def road_to(heard: float, events: Sequence[Event]) -> list[str]:
    """Names of the threads and processes by which a chunk came that the client heard at this time."""
    sent = [event for event in events if event.what == "respond" and event.at < heard][-1]
    after = {each.place[0] for each in events if sent.at < each.at < heard and each.what == "call"}
    stays, place, end = [], sent.place, sent.at
    found = hand_overs(events)
    while causes := [each for each in found if each.taker == place and each.taken < end]:
        cause = max(causes)
        stays.append((network_calls(events, place, cause.taken, end), place[1]))
        place, end = cause.giver, cause.given
    first = max(sorted(range(len(stays)), key=lambda number: stays[number])[-2:])
    names = [name for _, name in stays[first::-1]]
    return [*names, "tritonserver", *sorted(after - {sent.place[0]}), "client"]


def network_calls(events: Iterable[Event], place: Place, begin: float, end: float) -> int:
    during = (each for each in events if each.place == place and begin <= each.at <= end)
    return sum(each.what == "call" and computes(each.subject) for each in during)


def hand_overs(events: Iterable[Event]) -> list[HandOver]:
    """Hand-overs from one thread to another: a lock's release, an item of a queue, a call, bytes."""
    given: dict[tuple[str, str], Event] = {}
    waiting: dict[tuple[Place, str], float] = {}
    found = []
    for event in events:
        process = event.place[0]
        if event.what == "call loop" and event.subject != event.place[1]:
            found.append(HandOver(event.at, (process, event.subject), event.at, event.place))
        elif event.what == "give":
            given[process, event.subject] = event
        elif event.what == "wait":
            waiting[event.place, event.subject] = event.at
        elif event.what == "take":
            bytes_came = event.subject == "socket"
            givers = [
                giver
                for (source, subject), giver in given.items()
                if subject == event.subject and (source == process) != bytes_came
            ]
            giver = max(givers, default=event)
            since = waiting.get((event.place, event.subject), 0.0) if "lock" in event.subject else 0.0
            if giver.place != event.place and giver.at >= since:
                found.append(HandOver(event.at, event.place, giver.at, giver.place))
    return found


if __name__ == "__main__":
    main()
