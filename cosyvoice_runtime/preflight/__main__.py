"""Command line: ``python -m cosyvoice_runtime.preflight --engine ENGINE``, in NVIDIA's container for it.

Exit status: 0 when nothing failed, 1 when something did, 2 when something could not be checked. A warning is
about what should run, such as a driver that is older than the container's own and compatible with it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cosyvoice_runtime.preflight import tensorrt_llm, vllm
from cosyvoice_runtime.preflight.checks import Outcome, Verdict

FAILED, UNCHECKED = 1, 2
"""Exit codes."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m cosyvoice_runtime.preflight",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--engine", choices=("tensorrt_llm", "vllm"), default="tensorrt_llm", help="default: %(default)s"
    )
    parser.add_argument(
        "--checkpoint", type=Path, help="engine tensorrt_llm: what stage 1 converted, engines/..._checkpoint"
    )
    parser.add_argument("--strict", action="store_true", help="a warning is a failure")
    options = parser.parse_args(arguments)
    outcomes = list(vllm.check() if options.engine == "vllm" else tensorrt_llm.check(options.checkpoint))
    print(table(outcomes))
    verdicts = {outcome.verdict for outcome in outcomes}
    if Verdict.FAIL in verdicts or (options.strict and Verdict.WARN in verdicts):
        return FAILED
    return UNCHECKED if Verdict.UNKNOWN in verdicts else 0


def table(outcomes: Sequence[Outcome]) -> str:
    """A line for each outcome, and their counts."""
    width = max(len(row.check) for row in outcomes)
    lines = [f"{row.verdict.value:9}  {row.check:{width}}  {row.text}".rstrip() for row in outcomes]
    counts = {verdict: sum(row.verdict is verdict for row in outcomes) for verdict in Verdict}
    shown = [verdict for verdict, count in counts.items() if count or verdict is not Verdict.WARN]
    return "\n".join([*lines, ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in shown)])


if __name__ == "__main__":
    sys.exit(main())
