"""Options of the command line for answers that are compared with their texts."""

from __future__ import annotations

import argparse
from typing import get_args

from cosyvoice_runtime.engine.utterance.verdict import Verify


def add_verify(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--verify",
        choices=get_args(Verify),
        help="tell words that are not said once, or draw them again (default: report with --offline)",
    )
    command.add_argument(
        "--verifier",
        metavar="MODULE:CLASS",
        help="judges audio, too, with --offline: a recogniser of your own",
    )
