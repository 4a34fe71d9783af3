"""Options of the command line for answers that are compared with their texts."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from typing import get_args

from cosyvoice_client.delivery import tell
from cosyvoice_runtime.engine.utterance.turn import place
from cosyvoice_runtime.engine.utterance.verdict import Misspoken, Verification, Verify
from cosyvoice_runtime.engine.utterance.verification import Verifier
from cosyvoice_runtime.errors import InvalidInput


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


def load_verifier(name: str | None) -> Verifier | None:
    """An object of a class without arguments, which is called with samples, rate and text.

    Raises:
        InvalidInput: there is no such class, or a package that it needs is missing.
    """
    if name is None:
        return None
    module, _, kind = name.partition(":")
    try:
        verifier: Verifier = getattr(importlib.import_module(module), kind)()
    except (ImportError, ValueError, AttributeError, TypeError) as error:
        raise InvalidInput("verifier", name, f"MODULE:CLASS ({error})") from error
    return verifier


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
