"""The supervisor's command line: ``python -m cosyvoice_runtime.supervisor build/model_repo``."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.process.log_lines import log_lines
from cosyvoice_runtime.process.named_log import NamedLog
from cosyvoice_runtime.settings import ServerSettings, Settings
from cosyvoice_runtime.settings.deployment import split_assignment
from cosyvoice_runtime.supervisor.errors import UNDRAINED_EXIT_CODE, SupervisorError
from cosyvoice_runtime.supervisor.group import ServerGroup
from cosyvoice_runtime.supervisor.keep_up import keep_up
from cosyvoice_runtime.supervisor.places import places_of
from cosyvoice_runtime.supervisor.server import Server

logger = logging.getLogger("supervisor")

EPILOG = """\
Settings are those of section server (server.http_port=9000); COSYVOICE_SERVER__HTTP_PORT works too.
On a machine with several GPUs there is a server for each (server.gpus).
SIGTERM or SIGINT drains and stops; a second one stops at once.

Exit codes: 0 stopped when told to, 2 wrong arguments, 3 not started because it could not have run,
4 the server or a model did not come up, 5 the server died too often, 7 stopped when told to, with requests
cut off, 8 the supervisor itself failed.
"""


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    log_lines(logging.INFO, "%(asctime)s %(levelname)-7s %(message)s", NamedLog())
    try:
        settings = Settings.read(options.settings, os.environ)
        _require_own(options.settings)
    except CosyVoiceError as error:
        logger.error("%s", error)
        return 2
    try:
        server = _server(options.repository, settings.server)
        _stop_on_signals(server)
        if isinstance(server, ServerGroup):
            with server:
                server.wait()
        else:
            keep_up(server)
    except InvalidInput as error:
        logger.error("%s", error)
        return 2
    except SupervisorError as error:
        for line in str(error).splitlines():
            logger.error("%s", line)
        return error.exit_code
    return 0 if server.drained else UNDRAINED_EXIT_CODE


def _server(repository: Path, settings: ServerSettings) -> Server | ServerGroup:
    """One server, or one for each of several GPUs."""
    places = places_of(settings.gpus, repository, os.environ)
    if len(places) > 1:
        return ServerGroup(repository, settings, places)
    return Server(repository, settings, place=places[0])


def _require_own(assignments: list[str]) -> None:
    """Refuse settings of other sections, which would change nothing here."""
    for assignment in assignments:
        key, value = split_assignment(assignment)
        section, _, name = key.rpartition(".")
        if section not in ("", "server") or name not in ServerSettings.field_names():
            raise InvalidInput(key, value, "settings of section server; models have what stage 2 renders")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cosyvoice_runtime.supervisor",
        description="Run tritonserver: start, watch, repair, drain and stop it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("repository", type=Path, help="rendered model repository")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    return parser


def _stop_on_signals(server: Server | ServerGroup) -> None:
    def stop(*_: object) -> None:
        # A separate thread calls it, because the handler may interrupt the lock that the request needs.
        threading.Thread(target=server.request_stop).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


if __name__ == "__main__":
    code = main()
    for number in (signal.SIGTERM, signal.SIGINT):  # Python restores the default handlers while it exits.
        signal.signal(number, signal.SIG_IGN)
    sys.exit(code)
