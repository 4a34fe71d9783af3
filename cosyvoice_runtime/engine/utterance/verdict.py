"""Findings about an answer that does not say its text once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from cosyvoice_runtime.errors import InvalidInput

Verify = Literal["off", "report", "retry"]
"""Whether segments are checked, and whether what is wrong is only told, or drawn again, too."""


def check_verify(verify: str | None) -> None:
    """Raise an InvalidInput for a value that is none of :data:`Verify`; None stands for the default."""
    if verify is not None and verify not in get_args(Verify):
        raise InvalidInput("verify", verify, f"one of {', '.join(get_args(Verify))}")


class Misspoken(NamedTuple):
    """A place at which speech does not say its text once.

    Attributes:
        kind: `alignment.coverage.Kind`, or ``heard`` by a verifier.
        text: words of the request's text as they were sent, or what the verifier says.
        start, end: characters of the request's text, or of the texts of its turns, one behind another.
        turn: number of the turn, from 0 on; None of a text.
    """

    kind: str
    text: str
    start: int
    end: int
    turn: int | None = None


@dataclass(frozen=True)
class Verification:
    """
    Attributes:
        findings: what is wrong with a segment.
        redraws: how often it was drawn again.
        checked: whether anything was there to judge by; else nothing is known of it.
        unheard_s: seconds of speech that were made for draws which are not heard.
    """

    findings: Sequence[Misspoken]
    redraws: int = 0
    checked: bool = True
    unheard_s: float = field(default=0.0, compare=False)

    def told(self) -> dict[str, Any]:
        """It, as JSON has it: a finding of a text has no ``turn``."""
        each = [found._asdict() for found in self.findings]
        findings = [{name: value for name, value in found.items() if value is not None} for found in each]
        return {"checked": self.checked, "redraws": self.redraws, "findings": findings}
