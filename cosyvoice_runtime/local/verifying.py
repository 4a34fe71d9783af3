"""Options of the command line for answers that are compared with their texts."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import get_args

from cosyvoice_client.delivery import tell
from cosyvoice_runtime.engine.utterance.turn import place
from cosyvoice_runtime.engine.utterance.verdict import Misspoken, Verification, Verify


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


def tell_verification(verification: Verification | None) -> None:
    """Tell what was found of a segment, and that it was drawn again."""
    if verification is None:
        return
    if verification.redraws:
        tell(f"drawn again: {verification.redraws}")
    for line in _lines(verification.findings):
        tell(line)


def _lines(findings: Sequence[Misspoken]) -> list[str]:
    return [
        f"{each.kind}: {each.text!r}, characters {each.start} to {each.end}"
        + ("" if each.turn is None else f", in {place(each.turn)}")
        for each in findings
    ]
