#!/usr/bin/env python3
"""Run a fleet on this machine until Ctrl-C or SIGTERM: servers without a GPU, and fronts before them.

demo_fleet.py SERVERS

The servers speak with the demo voice behind one address (server.grpc_port, server.http_port). Each front
knows all of them. The first one listens at front.port, the second one at the port behind it. They write
into build/demo/fronts.log, and no process outlives this one, even if it is killed.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.process.log_lines import log_lines
from cosyvoice_runtime.process.named_log import NamedLog
from cosyvoice_runtime.settings import FrontSettings, Settings
from cosyvoice_runtime.supervisor.group import ServerGroup
from cosyvoice_runtime.supervisor.places import ServerPlace
from cosyvoice_runtime.supervisor.process import LogFile, Run, new_run_directory
from demo import (
    BUILD,
    DEMO_VOICE,
    POLL_S,
    ROOT,
    DemoError,
    listens,
    make_repository,
    require_free,
    tell_address,
)

FRONTS = 2
MOST_SERVERS = 32
LOG, MAX_LOG_BYTES = "fronts.log", 2**24


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("servers", type=int, help=f"2 to {MOST_SERVERS}")
    servers = parser.parse_args(arguments).servers
    log_lines(logging.INFO, "%(message)s", NamedLog())
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends as Ctrl-C does
    try:
        if not 2 <= servers <= MOST_SERVERS:
            raise InvalidInput("servers", servers, f"2 to {MOST_SERVERS}")
        run(servers)
    except CosyVoiceError as error:
        print(f"fleet: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


def run(servers: int) -> None:
    """Run servers and fronts until Ctrl-C.

    Raises:
        CosyVoiceError: something could not start, or a front or all servers have ended by themselves.
    """
    settings = Settings.read([], os.environ)
    given = front_settings(settings.front)
    for front in given:
        require_free(front)
    repository = make_repository(DEMO_VOICE, servers)
    places = [ServerPlace(f"server {number}", servers=servers) for number in range(1, servers + 1)]
    own = settings.server.replace(log_file=BUILD / "tritonserver.log")
    with ServerGroup(repository, own, places) as group:
        addresses = ",".join(server.grpc_url for server in group.servers.values())
        with fronts(given, addresses) as processes:
            wait_until_they_listen(given, processes)
            for front in given:
                tell_address(front)
            while True:
                require_fronts(processes)
                group.require()
                time.sleep(POLL_S)


def front_settings(first: FrontSettings) -> list[FrontSettings]:
    """The settings of all fronts, whose ports follow each other."""
    return [first.replace(port=first.port + number) for number in range(FRONTS)]


@contextmanager
def fronts(given: Sequence[FrontSettings], addresses: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes of fronts before these servers, which end when their listeners have heard all."""
    processes: list[subprocess.Popen[str]] = []
    run = Run(new_run_directory(), LogFile(BUILD / LOG, MAX_LOG_BYTES))
    run.begin()
    try:
        for front in given:
            assignments = {
                "port": front.port,
                "grpc_url": addresses,
                "voices_dir": BUILD / "voices",
                "leave_s": 0,
            }
            command = [sys.executable, "-m", "cosyvoice_front"]
            command += [f"front.{key}={value}" for key, value in assignments.items()]
            process = run.spawn(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.STDOUT)
            processes.append(process)
        yield processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
        run.end()


def wait_until_they_listen(
    given: Sequence[FrontSettings], processes: Sequence[subprocess.Popen[str]]
) -> None:
    for front in given:
        while not listens(front.host, front.port):
            require_fronts(processes)
            time.sleep(POLL_S)


def require_fronts(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Raise a DemoError if a front has ended."""
    for process in processes:
        if process.poll() is not None:
            raise DemoError(f"a front has ended with status {process.returncode}, see {BUILD / LOG}")


if __name__ == "__main__":
    sys.exit(main())
