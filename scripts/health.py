#!/usr/bin/env python3
"""Whether the server of these settings speaks: one short inference through all of its models.

Exit status 0 when it answers, also that it is busy; 1 when it does not. For a container's health check.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from cosyvoice_runtime.errors import CosyVoiceError
from cosyvoice_runtime.settings import Settings
from cosyvoice_runtime.supervisor import Probe
from cosyvoice_runtime.supervisor.preflight import ServerPorts

REPOSITORY = Path(__file__).resolve().parent.parent / "model_repo"
MODEL = "cosyvoice2"
TIMEOUT_S = 25.0


def main(arguments: list[str] | None = None) -> int:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(arguments)
    try:
        ports = ServerPorts.choose(Settings.read(environment=os.environ).server)
        Probe.read(REPOSITORY / MODEL / "probe.json")(ports.url(ports.grpc), TIMEOUT_S)
    except CosyVoiceError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
