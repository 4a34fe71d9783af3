#!/usr/bin/env python3
"""Print where the server of these settings listens, HOST:PORT as clients on this machine write it.

    server_address.py http    or grpc

Settings come from COSYVOICE_* variables.
"""

from __future__ import annotations

import argparse
import os
import sys

from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.process.listening import local_url
from cosyvoice_runtime.settings import ServerSettings, Settings

PORTS = ("http", "grpc")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("port", choices=PORTS)
    options = parser.parse_args(arguments)
    try:
        print(address(Settings.read(environment=os.environ).server, options.port))
    except CosyVoiceError as error:
        print(f"server_address: {error}", file=sys.stderr)
        return 2
    return 0


def address(settings: ServerSettings, name: str) -> str:
    """``host:port`` of HTTP or gRPC.

    Raises:
        InvalidInput: the server takes a free port, which only its log tells.
    """
    port = getattr(settings, f"{name}_port")
    if not port:
        raise InvalidInput(f"server.{name}_port", port, "a port, or --server-url with the one it has taken")
    return local_url(settings.host, port)


if __name__ == "__main__":
    sys.exit(main())
