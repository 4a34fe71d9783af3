"""Serve as a worker of Dynamo until Ctrl-C or SIGTERM.

Settings are the front's. Dynamo's own are its variables, DYN_*.
"""

from __future__ import annotations

import argparse
import logging
import os

import uvloop
from dynamo.runtime import dynamo_worker

from cosyvoice_dynamo.worker import work
from cosyvoice_front.command import check_bucket, check_parts
from cosyvoice_front.request_id import set_up_logging
from cosyvoice_runtime.errors import CosyVoiceError, InvalidInput
from cosyvoice_runtime.settings import FrontSettings, Settings

logger = logging.getLogger("cosyvoice_dynamo")

REFUSED = ("api_keys_file", "audit_file")
"""Settings of the front that ask for what Dynamo's frontend tells no worker: whose request it is."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m cosyvoice_dynamo", description=__doc__)
    parser.add_argument("settings", nargs="*", metavar="SECTION.KEY=VALUE", help="see docs/settings.md")
    options = parser.parse_args(arguments)
    set_up_logging()
    try:
        settings = Settings.read(options.settings, os.environ)
        refuse_keys(settings.front)
        check_parts(settings.front)
        check_bucket(settings.cosyvoice2.bucket_url)
        uvloop.run(dynamo_worker()(work)(settings))
    except CosyVoiceError as error:
        logger.error("%s", error)
        return 2
    return 0


def refuse_keys(front: FrontSettings) -> None:
    """Raise an InvalidInput where callers would have to be known."""
    for name in REFUSED:
        if value := getattr(front, name):
            limit = "leave it empty: Dynamo's frontend doesn't tell its workers who calls"
            raise InvalidInput(f"front.{name}", value, limit)
